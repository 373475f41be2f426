from __future__ import annotations

import json

import numpy as np
import pytest

from footplate.qa.beams import postprocess_qa_predictions_with_beam_search
from slow_answers import answer_beams_slowly, as_columns, make_examples


def make_beams(
    num_features: int, num_starts: int, num_ends: int, kind: str = "random", seed: int = 0
) -> tuple:
    rng = np.random.default_rng(seed)
    log_probs = -np.abs(rng.normal(size=(num_features, num_starts + num_starts * num_ends + 1))).astype(
        np.float32
    )
    if kind == "ties":
        log_probs = np.round(log_probs)
    if kind == "broken":
        log_probs[rng.random(log_probs.shape) < 0.2] = -np.inf
    starts, ends, null = np.split(log_probs, [num_starts, log_probs.shape[1] - 1], axis=1)
    first = rng.integers(0, 20, starts.shape)
    last = np.clip(np.repeat(first, num_ends, axis=1) + rng.integers(-2, 8, ends.shape), 0, None)
    return starts, first, ends, last, null[:, 0]


@pytest.mark.parametrize("kind", ["random", "ties", "broken"])
@pytest.mark.parametrize(("starts", "ends"), [(5, 5), (3, 2), (1, 4)])
@pytest.mark.parametrize("v2", [False, True])
def test_answers_are_those_of_trying_one_beam_after_another(tmp_path, kind, starts, ends, v2):
    for seed in range(3):
        examples, features = make_examples(seed)
        beams = make_beams(len(features), starts, ends, kind, seed)
        settings = {"n_best_size": 6, "max_answer_length": 4}
        answers, odds = postprocess_qa_predictions_with_beam_search(
            examples, as_columns(features), beams, v2,
            start_n_top=starts, end_n_top=ends, output_dir=str(tmp_path), **settings,
        )  # fmt: skip
        expected = answer_beams_slowly(examples, features, beams, 6, 4, starts, ends)
        assert answers == expected[0]
        assert odds == (expected[1] if v2 else None)
        saved = json.loads((tmp_path / "nbest_predictions.json").read_text(encoding="utf-8"))
        found = {key: [(row["text"], row["probability"]) for row in rows] for key, rows in saved.items()}
        assert found == expected[2]
        assert (tmp_path / "null_odds.json").exists() == v2


def test_the_saved_answers_name_their_log_probabilities(tmp_path):
    examples = [{"id": "q", "context": "yes no"}, {"id": "r", "context": "none"}]
    features = [
        {"example_id": "q", "offset_mapping": [None, [0, 3], [4, 6]]},
        {"example_id": "r", "offset_mapping": [None, None, None]},
    ]
    beams = ([[-0.5]] * 2, [[1]] * 2, [[-0.25]] * 2, [[2]] * 2, [0.5, -1.0])
    answers, odds = postprocess_qa_predictions_with_beam_search(
        examples, features, beams, True, start_n_top=1, end_n_top=1, output_dir=str(tmp_path), prefix="test"
    )
    assert answers == {"q": "yes no", "r": ""}
    assert odds == {"q": 0.5, "r": -1.0}
    saved = json.loads((tmp_path / "test_nbest_predictions.json").read_text(encoding="utf-8"))
    assert saved["q"] == [
        {"start_log_prob": -0.5, "end_log_prob": -0.25, "text": "yes no", "probability": 1.0}
    ]
    assert saved["r"][0]["start_logit"] == -1e-6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start_n_top": 6}, "start_n_top=6"),
        ({"end_n_top": 7}, "end_n_top=7"),
        ({"end_n_top": 0}, "end_n_top=0"),
    ],
)
def test_more_beams_than_the_model_keeps_are_refused(change, message):
    examples, features = make_examples(0)
    with pytest.raises(ValueError, match=message):
        postprocess_qa_predictions_with_beam_search(
            examples, features, make_beams(len(features), 5, 5), **change
        )


def test_start_and_end_logits_alone_are_refused():
    examples, features = make_examples(0)
    with pytest.raises(ValueError, match="the 5 arrays start_top_log_probs"):
        postprocess_qa_predictions_with_beam_search(examples, features, (np.zeros((len(features), 5)),) * 2)
