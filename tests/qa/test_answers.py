from __future__ import annotations

import json
import logging
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset

from footplate.qa import candidates
from footplate.qa.answers import postprocess_qa_predictions
from slow_answers import answer_slowly, as_columns, make_examples


def make_logits(kind: str, seed: int, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(2, *shape)).astype(np.float16 if kind == "half" else np.float32) * 3
    if kind == "ties":
        logits = np.round(logits / 3)
    elif kind == "equal":
        logits[:] = 1.5
    elif kind in ("nan", "inf", "broken"):
        odd = {"nan": [np.nan], "inf": [np.inf, -np.inf], "broken": [np.nan, np.inf, -np.inf, -100]}[kind]
        chosen = rng.random(logits.shape) < 0.3
        logits[chosen] = rng.choice(odd, size=int(chosen.sum()))
    elif kind == "all nan":
        logits[:] = np.nan
    return logits[0], logits[1]


def run(
    folder: Path, examples: Any, features: Any, predictions: Any, **settings: Any
) -> tuple[Any, Any, Any]:
    answers = postprocess_qa_predictions(
        examples, features, predictions, output_dir=str(folder), prefix="eval", **settings
    )
    saved = {
        name: json.loads((folder / f"eval_{name}.json").read_text(encoding="utf-8"))
        for name in ("predictions", "nbest_predictions", "null_odds")
        if (folder / f"eval_{name}.json").exists()
    }
    assert saved["predictions"] == answers
    assert list(saved["predictions"]) == [example["id"] for example in examples]
    assert ("null_odds" in saved) == settings.get("version_2_with_negative", False)
    return answers, saved["nbest_predictions"], saved.get("null_odds", {})


KINDS = ["random", "half", "ties", "equal", "nan", "inf", "broken", "all nan"]


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("n_best", "max_length", "threshold"), [(20, 30, 0.0), (3, 2, 1.0), (100, 5, -2.5), (1, 1, 0.0)]
)
def test_answers_are_those_of_trying_one_candidate_after_another(
    tmp_path, kind, v2, n_best, max_length, threshold
):
    for seed in range(3):
        examples, features = make_examples(seed)
        predictions = make_logits(kind, seed, (len(features), 18))
        expected = answer_slowly(examples, features, predictions, v2, n_best, max_length, threshold)
        found = run(
            tmp_path, examples, features, predictions,
            version_2_with_negative=v2, n_best_size=n_best, max_answer_length=max_length,
            null_score_diff_threshold=threshold,
        )  # fmt: skip
        assert found[0] == expected[0]
        assert found[1] == expected[1]
        np.testing.assert_equal(found[2], expected[2])


@pytest.mark.parametrize("v2", [False, True])
def test_many_small_pieces_give_what_one_gives(tmp_path, monkeypatch, v2):
    examples, features = make_examples(5, num_examples=30)
    predictions = make_logits("ties", 5, (len(features), 18))
    whole = run(tmp_path, examples, features, predictions, version_2_with_negative=v2)
    monkeypatch.setattr(candidates, "MAX_CELLS", 1000)
    assert run(tmp_path, examples, features, predictions, version_2_with_negative=v2) == whole


@pytest.mark.parametrize("v2", [False, True])
def test_tokens_with_less_context_than_elsewhere_start_no_answer(tmp_path, v2):
    rng = random.Random(0)
    examples, features = make_examples(7)
    for feature in features:
        feature["token_is_max_context"] = {str(token): rng.random() < 0.5 for token in range(4, 40, 2)}
    features[0]["token_is_max_context"] = None
    predictions = make_logits("random", 7, (len(features), 18))
    expected = answer_slowly(examples, features, predictions, v2)
    assert run(tmp_path, examples, features, predictions, version_2_with_negative=v2) == expected
    without = [{**feature, "token_is_max_context": None} for feature in features]
    assert expected != answer_slowly(examples, without, predictions, v2)


@pytest.mark.parametrize(
    "shape",
    [
        Dataset.from_list,
        as_columns,
        lambda rows: Dataset.from_list([rows[-1], *rows]).select(range(1, len(rows) + 1)),
        lambda rows: Dataset.from_list(rows[::-1]).select(range(len(rows) - 1, -1, -1)),
        lambda rows: Dataset.from_list(rows).with_format("numpy"),
    ],
    ids=["dataset", "columns", "selected", "reordered", "formatted"],
)
def test_any_kind_of_dataset_gives_the_same_answers(tmp_path, shape):
    examples, features = make_examples(3)
    features[2]["offset_mapping"] = [None] * 5
    predictions = make_logits("random", 3, (len(features), 18))
    expected = answer_slowly(examples, features, predictions, True)
    given_examples = shape(examples)
    answers = postprocess_qa_predictions(given_examples, shape(features), predictions, True)
    assert answers == expected[0]


def test_rows_are_read_once_from_a_dataset_that_makes_them():
    class Counting:
        def __init__(self, rows):
            self.rows, self.num_reads = rows, 0

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, index):
            self.num_reads += 1
            return self.rows[index]

    examples, features = make_examples(1)
    counting = Counting(features)
    predictions = make_logits("random", 1, (len(features), 18))
    assert (
        postprocess_qa_predictions(examples, counting, predictions)
        == answer_slowly(examples, features, predictions)[0]
    )
    assert counting.num_reads <= 3 * len(features)


def one_feature(context: str, offsets: list[Any], width: int = 8) -> tuple[list[Any], list[Any], Any]:
    examples = [{"id": "q", "context": context}]
    features = [{"example_id": "q", "offset_mapping": offsets}]
    return examples, features, np.zeros((2, 1, width), dtype=np.float32)


def test_the_best_span_of_korean_text_is_cut_by_characters():
    context = "세종대왕은 1443년에 훈민정음을 창제하였다."
    offsets = [None, [0, 5], [6, 12], [13, 18], [19, 25]]
    examples, features, logits = one_feature(context, offsets)
    logits[0, 0, 2] = logits[1, 0, 3] = 5
    assert postprocess_qa_predictions(examples, features, logits.tolist()) == {"q": "1443년에 훈민정음을"}


def test_no_answer_is_chosen_only_beyond_the_threshold():
    examples, features, logits = one_feature("yes no", [None, [0, 3], [4, 6]])
    logits[:, 0, 0], logits[:, 0, 1] = 3, 2

    def answer(threshold: float) -> str:
        return postprocess_qa_predictions(
            examples, features, tuple(logits), True, null_score_diff_threshold=threshold
        )["q"]

    assert answer(0.0) == answer(1.9) == ""
    assert answer(2.0) == answer(5.0) == "yes"
    assert postprocess_qa_predictions(examples, features, tuple(logits)) == {"q": "yes"}


@pytest.mark.parametrize("offsets", [[None] * 8, [], None])
def test_a_feature_without_context_has_no_real_answer(offsets):
    examples, features, logits = one_feature("", offsets)
    assert postprocess_qa_predictions(examples, features, tuple(logits)) == {"q": "empty"}
    logits[:, 0, 0] = 1
    assert postprocess_qa_predictions(examples, features, tuple(logits), True) == {"q": ""}


def test_an_example_without_features_is_counted_and_warned_of(caplog):
    examples, features, logits = one_feature("yes", [None, [0, 3]])
    examples.append({"id": "unread", "context": "no"})
    with caplog.at_level(logging.WARNING):
        assert postprocess_qa_predictions(examples, features, tuple(logits))["unread"] == "empty"
        assert postprocess_qa_predictions(examples, features, tuple(logits), True)["unread"] == ""
    assert "1 of 2 examples have no feature" in caplog.text


def test_scores_that_are_no_numbers_are_warned_of_with_their_number(caplog):
    examples, features, logits = one_feature("yes no", [None, [0, 3], [4, 6]])
    logits[0, 0, 1] = logits[1, 0, 1] = np.nan
    with caplog.at_level(logging.WARNING):
        assert postprocess_qa_predictions(examples, features, tuple(logits)) == {"q": "no"}
    assert "2 scores are not a number" in caplog.text


def test_files_without_a_prefix_have_the_plain_names(tmp_path):
    examples, features, logits = one_feature("절반 \ud800 문자", [None, [0, 2], [3, 4]])
    logits[0, 0, 1] = logits[1, 0, 2] = 1
    answers = postprocess_qa_predictions(examples, features, tuple(logits), True, output_dir=str(tmp_path))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["nbest_predictions.json", "null_odds.json", "predictions.json"]
    text = (tmp_path / "predictions.json").read_text(encoding="utf-8")
    assert "절반" in text, "people read these files"
    assert json.loads(text) == answers == {"q": "절반 \ud800"}


def test_a_disk_that_refuses_leaves_the_last_files_whole(tmp_path, monkeypatch):
    examples, features, logits = one_feature("yes no", [None, [0, 3], [4, 6]])
    postprocess_qa_predictions(examples, features, tuple(logits), output_dir=str(tmp_path))
    before = (tmp_path / "predictions.json").read_bytes()

    def refuse(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(candidates.os, "replace", refuse)
    with pytest.raises(OSError, match="No space left"):
        postprocess_qa_predictions(examples, features, tuple(logits + 1), output_dir=str(tmp_path))
    assert (tmp_path / "predictions.json").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"predictions": (np.zeros((2, 8)), np.zeros((2, 8)))},
            "hold 2 rows of start_logits, but there are 1 features",
        ),
        ({"predictions": (np.zeros((1, 8)),) * 3}, "must be the 2 arrays start_logits, end_logits; got 3"),
        ({"predictions": np.zeros((1, 8))}, "must be the 2 arrays start_logits, end_logits; got ndarray"),
        ({"predictions": (np.zeros((1, 8)), np.zeros((1, 7)))}, "must be 2-D, of one shape"),
        ({"features": [{"example_id": "x", "offset_mapping": []}]}, "example_id 'x' is not among the ids"),
        ({"features": [{"example_id": "q"}]}, "features has no column 'offset_mapping'"),
        ({"features": Dataset.from_list([{"example_id": "q"}])}, "features has no column 'offset_mapping'"),
        ({"examples": [{"id": "q"}]}, "examples has no column 'context'"),
        ({"n_best_size": 0}, "n_best_size=0"),
        ({"max_answer_length": -1}, "max_answer_length=-1"),
    ],
)
def test_what_does_not_fit_together_is_refused(change, message):
    examples, features, logits = one_feature("yes", [None, [0, 3]])
    given = {"examples": examples, "features": features, "predictions": tuple(logits), **change}
    with pytest.raises(ValueError, match=message):
        postprocess_qa_predictions(**given)


def test_an_output_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(OSError, match=r"output_dir=.* is not a directory"):
        postprocess_qa_predictions(
            *one_feature("yes", [None, [0, 3]])[:2],
            (np.zeros((1, 8)),) * 2,
            output_dir=str(tmp_path / "nowhere"),
        )


def test_unanswerable_questions_need_version_2():
    examples, features = make_examples(0)
    predictions = make_logits("random", 0, (len(features), 18))
    for number, example in enumerate(examples):
        texts = [] if number == 4 else ["서울"]
        example["answers"] = {"text": texts, "answer_start": [0] * len(texts)}
    with pytest.raises(ValueError, match=r"1 of 12 examples have no answer.*version_2_with_negative=True"):
        postprocess_qa_predictions(examples, features, predictions)
    assert len(postprocess_qa_predictions(examples, features, predictions, True)) == 12
    for example in examples:  # a test set whose answers are hidden
        example["answers"] = {"text": [], "answer_start": []}
    assert len(postprocess_qa_predictions(examples, features, predictions)) == 12


def count_calls(function, *args, **kwargs):
    """How many functions are called, by Python and by C, while `function` runs."""
    num_calls = 0

    def count(frame, event, argument):
        nonlocal num_calls
        num_calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function(*args, **kwargs)
    finally:
        sys.setprofile(None)
    return num_calls


def test_the_work_in_python_hardly_grows_with_the_number_of_candidates():
    num_features, num_tokens = 300, 384
    offsets = [None] * 20 + [[5 * token, 5 * token + 4] for token in range(num_tokens - 21)] + [None]
    features = [{"example_id": row * 2 // 3, "offset_mapping": offsets} for row in range(num_features)]
    examples = [{"id": number, "context": "word " * 400} for number in range(num_features * 2 // 3 + 1)]
    logits = np.random.default_rng(0).normal(size=(2, num_features, num_tokens)).astype(np.float32)
    few, many = (
        count_calls(postprocess_qa_predictions, examples, features, tuple(logits), True, n_best_size=size)
        for size in (10, 40)
    )
    assert many < 1.2 * few  # 1,600 pairs of tokens per feature instead of 100
