"""Counts, scores and calibration of classes, beside scikit-learn's."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest
from sklearn import metrics

from footplate.evaluation.classes import summarize_classes

RNG = np.random.default_rng(1)


def make_scores(num_rows, num_classes, strength=1.5, dtype=np.float32):
    labels = RNG.integers(0, num_classes, num_rows)
    scores = RNG.standard_normal((num_rows, num_classes)).astype(dtype)
    scores[np.arange(num_rows), labels] += strength
    return scores, labels


def check_scores(summary, right, chosen, labels=None):
    expected = metrics.precision_recall_fscore_support(right, chosen, zero_division=0, labels=labels)
    for found, wanted in zip(
        (summary.precision, summary.recall, summary.f1, summary.support), expected, strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert summary.accuracy == pytest.approx(metrics.accuracy_score(right, chosen), rel=1e-12)
    macro = metrics.f1_score(right, chosen, average="macro", zero_division=0)
    assert summary.macro_f1 == pytest.approx(macro, rel=1e-12)


@pytest.mark.parametrize("num_classes", [2, 3, 17])
def test_one_label_per_row(num_classes):
    scores, labels = make_scores(500, num_classes)
    summary = summarize_classes(scores, labels)
    check_scores(summary, labels, scores.argmax(1))
    assert (summary.matrix == metrics.confusion_matrix(labels, scores.argmax(1))).all()


def test_classes_that_do_not_occur_have_no_score():
    scores, labels = make_scores(40, 12)
    kept = (labels != 3) & (labels != 5)
    scores[:, 5] = -99.0  # and is never predicted
    summary = summarize_classes(scores[kept], labels[kept])
    chosen = scores[kept].argmax(1)
    check_scores(summary, labels[kept], chosen, labels=range(12))
    assert (summary.support[5], summary.predicted[5], summary.f1[5]) == (0, 0, 0.0)


def test_labels_of_tokens_that_do_not_count_are_left_out():
    scores = RNG.standard_normal((40, 9, 5)).astype(np.float32)
    labels = np.where(RNG.random((40, 9)) < 0.3, -100, RNG.integers(0, 5, (40, 9)))
    counted = labels != -100
    summary = summarize_classes(scores, labels)
    check_scores(summary, labels[counted], scores.argmax(-1)[counted])
    chosen = summarize_classes(scores.argmax(-1), labels)
    assert (chosen.matrix == summary.matrix).all()
    assert chosen.calibration is None


def test_several_classes_at_once():
    scores = RNG.standard_normal((300, 6))
    labels = (RNG.random((300, 6)) < 0.3).astype(np.float32)
    summary = summarize_classes(scores, labels)
    check_scores(summary, labels, scores > 0)
    assert summary.matrix is None
    assert summary.confusions() == []


def test_calibration_is_that_of_a_plain_loop():
    scores, labels = make_scores(400, 4, strength=0.7, dtype=np.float64)
    found = summarize_classes(scores, labels).calibration
    bins = [[] for _ in range(10)]
    for row, label in zip(scores, labels, strict=True):
        shares = np.exp(row) / np.exp(row).sum()
        bins[min(9, int(shares.max() * 10))].append((shares.max(), shares.argmax() == label))
    assert found.counts.tolist() == [len(entries) for entries in bins]
    assert found.right.tolist() == [sum(is_right for _, is_right in entries) for entries in bins]
    gaps = [
        abs(sum(sure for sure, _ in entries) - sum(is_right for _, is_right in entries)) for entries in bins
    ]
    assert found.error == pytest.approx(sum(gaps) / 400, rel=1e-9)


def test_a_confidence_of_one_is_in_the_last_bin():
    scores, labels = np.eye(3)[[0, 1, 2, 0]] * 1e4, np.array([0, 1, 2, 1])
    found = summarize_classes(scores, labels).calibration
    assert found.counts.tolist() == [0] * 9 + [4]
    assert found.error == pytest.approx(0.25)


def test_calibration_leaves_out_what_is_not_finite_and_counts_do_not():
    scores, labels = make_scores(20, 3)
    scores[4] = np.nan
    scores[5, 1] = np.inf
    summary = summarize_classes(scores, labels)
    assert summary.calibration.counts.sum() == 18
    assert summary.num_items == 20
    assert np.isfinite(summary.calibration.error)


def test_calibration_of_several_classes_at_once_counts_every_yes_and_no():
    scores = RNG.standard_normal((50, 3)) * 3
    labels = RNG.random((50, 3)) < 0.4
    found = summarize_classes(scores, labels).calibration
    sure = 1 / (1 + np.exp(-np.abs(scores)))
    assert found.counts.sum() == 150
    assert (found.confidence * found.counts).sum() == pytest.approx(sure.sum())
    assert found.right.sum() == ((scores > 0) == labels).sum()


@pytest.mark.parametrize("with_scores", [True, False])
def test_a_summary_takes_little_memory_however_many_labels_there_are(with_scores):
    labels = RNG.integers(0, 2, 500_000)
    predictions = RNG.standard_normal(500_000, dtype=np.float32) if with_scores else 1 - labels
    tracemalloc.start()
    try:
        summary = summarize_classes(predictions, labels)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert summary.num_items == 500_000
    assert (summary.matrix.sum(axis=1) == np.bincount(labels)).all()
    assert most < 8e6  # 40 bytes for each label would be 20e6


def test_the_most_frequent_confusions_come_first_with_their_names():
    labels = np.array([0, 0, 0, 1, 1, 2, 2])
    chosen = np.array([1, 1, 0, 1, 2, 0, 2])
    summary = summarize_classes(chosen, labels, names=["cat", "dog", "fox"])
    assert summary.confusions(2) == [("cat", "dog", 2), ("dog", "fox", 1)]
    assert summary.confusions()[-1] == ("fox", "cat", 1)


def test_names_that_do_not_fit_are_not_used():
    scores, labels = make_scores(30, 4)
    assert summarize_classes(scores, labels, names=["one", "two"]).name(1) == "1"


def test_names_that_are_equal_when_they_are_short_get_their_numbers():
    places = ("left", "right")
    names = [f"malignant neoplasm of unspecified site of {side} female breast" for side in places]
    names += ["other", "other", "one that is itself", "x" * 50]
    labels = np.arange(12) % 6
    event = summarize_classes((labels + 1) % 6, labels, names).to_event()
    assert event["names"] == [
        "malignant neoplasm of unspecified s… (0)",
        "malignant neoplasm of unspecified s… (1)",
        "other (2)",
        "other (3)",
        "one that is itself",
        "x" * 39 + "…",
    ]


@pytest.mark.parametrize(("num_classes", "limit"), [(3, 1000), (20, 7000), (50, 10_000), (1000, 7000)])
def test_what_the_journal_keeps_is_small(num_classes, limit):
    scores, labels = make_scores(6000, num_classes, strength=0.5)
    names = [f"{number} {'long ' * 50}" for number in range(num_classes)]
    event = summarize_classes(scores, labels, names).to_event()
    assert len(json.dumps(event, allow_nan=False)) < limit
    assert len(event["listed"]) == num_classes if num_classes <= 50 else len(event["listed"]) <= 90
    assert event["has_all_cells"] == (num_classes <= 20)


def test_of_many_classes_the_worst_and_the_most_frequent_are_kept():
    labels = np.repeat(np.arange(200), 5)
    labels = np.concatenate([labels, np.full(50, 7)])
    chosen = labels.copy()
    chosen[labels == 130] = 131
    event = summarize_classes(chosen, labels).to_event()
    assert {7, 130, 131} <= set(event["listed"])
    assert event["cells"] == [(130, 131, 5)]
    place = event["listed"].index(130)
    assert (event["support"][place], event["hits"][place]) == (5, 0)


def test_what_is_no_classifier_has_no_summary():
    assert summarize_classes(RNG.standard_normal(9), RNG.standard_normal(9)) is None
