from __future__ import annotations

import random
import re
import string
from collections import Counter
from typing import Any

import numpy as np
import pytest
from torchmetrics.functional.text import squad as reference_squad

from footplate import EvalPrediction
from footplate.qa.post_processing import build_post_processing
from footplate.qa.scores import (
    build_squad_metrics,
    compute_squad_metrics,
    split_korean,
    split_mixed,
    split_words,
)

VOCABULARY = [
    "The",
    "a",
    "an",
    "cat",
    "sat",
    "U.S.",
    "10%",
    "mat,",
    "(the",
    "river)",
    "anthem",
    "é",
    "서울",
    "",
]


def make_pairs(seed: int, share_unanswerable: float = 0.0) -> tuple[list[Any], list[Any]]:
    """Questions with one to three gold answers, or none, and predictions that are often near."""
    rng = random.Random(seed)

    def phrase() -> str:
        return " ".join(rng.choices(VOCABULARY, k=rng.randrange(0, 5)))

    predictions, references = [], []
    for number in range(200):
        golds = [] if rng.random() < share_unanswerable else [phrase() for _ in range(rng.randrange(1, 4))]
        text = rng.choice(golds) if golds and rng.random() < 0.3 else rng.choice([phrase(), ""])
        predictions.append({"id": str(number), "prediction_text": text})
        references.append({"id": str(number), "answers": {"text": golds, "answer_start": [0] * len(golds)}})
    rng.shuffle(predictions)
    return predictions, references


@pytest.mark.parametrize("seed", range(3))
def test_version_1_agrees_with_torchmetrics(seed):
    predictions, references = make_pairs(seed)
    # what two texts without a word get, it takes from version 2
    predictions = [row for row in predictions if split_words(row["prediction_text"])]
    kept = {row["id"] for row in predictions}
    references = [row for row in references if row["id"] in kept]
    assert len(kept) > 50
    expected = reference_squad(predictions, references)
    found = compute_squad_metrics(predictions, references)
    assert list(found) == ["exact_match", "f1"]
    assert found == {name: pytest.approx(float(value), rel=1e-6) for name, value in expected.items()}


def test_two_texts_without_a_word_agree_by_version_2_only():
    references = [{"id": 1, "answers": {"text": ["the"], "answer_start": [0]}}]
    assert compute_squad_metrics({1: "a"}, references) == {"exact_match": 100, "f1": 0}
    assert compute_squad_metrics({1: "a"}, references, True)["f1"] == 100


def normalize_slowly(text: str) -> str:
    text = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def score_slowly(predictions: list[Any], references: list[Any], threshold: float = 1.0) -> dict[str, float]:
    """Version 2 written down question by question, thresholds by trying each."""
    by_id = {row["id"]: row for row in predictions}
    rows = []
    for reference in references:
        row = by_id[reference["id"]]
        has_answer = bool(reference["answers"]["text"])
        golds = [normalize_slowly(text) for text in reference["answers"]["text"]]
        golds = [gold for gold in golds if gold] or [""]
        given = normalize_slowly(row["prediction_text"])
        f1s = []
        for gold in golds:
            common = sum((Counter(given.split()) & Counter(gold.split())).values())
            if not given or not gold:
                f1s.append(float(given == gold))
            elif common == 0:
                f1s.append(0.0)
            else:
                precision, recall = common / len(given.split()), common / len(gold.split())
                f1s.append(2 * precision * recall / (precision + recall))
        scores = {"exact": float(given in golds), "f1": max(f1s)}
        rows.append((scores, has_answer, row.get("no_answer_probability", 0.0), row["prediction_text"]))

    def mean(name: str, chosen: list[Any], limit: float) -> float:
        values = [float(not has) if chance > limit else scores[name] for scores, has, chance, _ in chosen]
        return 100 * sum(values) / len(values)

    groups = {"": rows, "HasAns_": [r for r in rows if r[1]], "NoAns_": [r for r in rows if not r[1]]}
    result = {}
    for group, chosen in groups.items():
        if chosen:
            result |= {f"{group}{name}": mean(name, chosen, threshold) for name in ("exact", "f1")}
            result[f"{group}total"] = len(chosen)
    return result


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("threshold", [1.0, 0.5])
def test_version_2_scores_questions_with_and_without_answers(share, threshold):
    predictions, references = make_pairs(5, share)
    rng = random.Random(0)
    for row in predictions:
        row["no_answer_probability"] = rng.choice([0.0, 0.25, 0.5, 0.75, 1.0])
    found = compute_squad_metrics(
        predictions, references, version_2_with_negative=True, no_answer_threshold=threshold
    )
    expected = score_slowly(predictions, references, threshold)
    best = {"best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh"}
    assert set(found) == set(expected) | best
    assert {name: found[name] for name in expected} == {n: pytest.approx(v) for n, v in expected.items()}


def test_the_best_threshold_beats_all_others():
    """A model that is sure of no answer exactly where there is none."""
    references = [
        {"id": i, "answers": {"text": ["x"] if i % 2 else [], "answer_start": []}} for i in range(10)
    ]
    predictions = [
        {"id": i, "prediction_text": "x", "no_answer_probability": 0.1 if i % 2 else 0.9} for i in range(10)
    ]
    found = compute_squad_metrics(predictions, references, version_2_with_negative=True)
    assert found["exact"] == 50
    assert (found["best_exact"], found["best_exact_thresh"]) == (100, 0.1)
    at_best = compute_squad_metrics(
        predictions, references, True, no_answer_threshold=found["best_f1_thresh"]
    )
    assert at_best["f1"] == found["best_f1"] == 100


def test_without_probabilities_no_threshold_is_looked_for():
    predictions, references = make_pairs(1, 0.5)
    assert not [key for key in compute_squad_metrics(predictions, references, True) if "best" in key]


@pytest.mark.parametrize(
    ("unit", "given", "gold", "exact", "f1"),
    [
        ("words", "The cat, sat!", "a cat sat", 100, 100),
        ("words", "훈민정음을", "훈민정음", 0, 0),
        ("characters", "훈민정음을", "훈민정음", 0, 100 * 8 / 9),
        ("characters", "《훈민정음》", "훈민정음", 100, 100),
        ("characters", "'세종' 대왕", "세종 대왕", 100, 100),
        ("characters", "세종대왕", "세종 대왕", 0, 100),
        ("characters", "the cat", "cat", 0, 100 * 6 / 9),
        ("characters", "1,443년", "1443년", 100, 100),
        ("words", "黑豹队", "黑豹", 0, 0),
        ("mixed", "黑豹队", "黑豹", 0, 80),
        ("mixed", "黑豹\uff0c队。", "黑豹队", 100, 100),
        ("mixed", "在NFL中", "NFL", 0, 50),
    ],
)
def test_an_answer_is_scored_in_units_of_its_language(unit, given, gold, exact, f1):
    references = [{"id": 1, "answers": [{"text": gold, "answer_start": 0}]}]
    found = compute_squad_metrics({1: given}, references, unit=unit)
    assert found == {"exact_match": exact, "f1": pytest.approx(f1)}


def test_texts_are_cut_as_their_benchmarks_do():
    assert split_words("The an-them: A U.S. test") == ["anthem", "us", "test"]
    assert split_korean("\u2018서울\u2019(Seoul) <시>") == ["서울", "seoul", "시"]
    assert split_mixed("约 24 次NFL。") == ["约", "24", "次", "nfl"]


def test_the_best_of_several_gold_answers_counts():
    references = [{"id": 1, "answers": {"text": ["cat", "big cat"], "answer_start": [0, 0]}}]
    assert compute_squad_metrics({1: "big cat"}, references) == {"exact_match": 100, "f1": 100}


def test_questions_without_prediction_score_nothing_and_are_warned_of(caplog):
    references = [{"id": i, "answers": {"text": ["cat"], "answer_start": [0]}} for i in range(4)]
    assert compute_squad_metrics({0: "cat"}, references) == {"exact_match": 25, "f1": 25}
    assert "3 of 4 questions have no prediction" in caplog.text


def test_references_without_answers_need_version_2():
    predictions, references = make_pairs(0, 0.5)
    with pytest.raises(ValueError, match=r"references have no answer. Set version_2_with_negative=True"):
        compute_squad_metrics(predictions, references)


def test_nothing_to_score_and_unknown_units_are_refused():
    with pytest.raises(ValueError, match="references is empty"):
        compute_squad_metrics([], [])
    with pytest.raises(ValueError, match=r"unit='letters' is unknown. Choose one of \['characters', 'mixed'"):
        compute_squad_metrics({}, [], unit="letters")


def test_ready_functions_fit_each_other(tmp_path):
    examples = [{"id": "q", "context": "yes no", "answers": {"text": ["no"], "answer_start": [4]}}]
    features = [{"example_id": "q", "offset_mapping": [None, [0, 3], [4, 6]]}]
    logits = np.array([[0.0, 0.0, 1.0]])
    post_process = build_post_processing(n_best_size=2, output_dir=str(tmp_path))
    answers = post_process(examples, features, (logits, logits), "predict")
    assert isinstance(answers, EvalPrediction)
    assert build_squad_metrics()(answers) == {"exact_match": 100, "f1": 100}
    assert build_squad_metrics(version_2_with_negative=True)(answers)["HasAns_total"] == 1
    assert (tmp_path / "predict_nbest_predictions.json").exists()
