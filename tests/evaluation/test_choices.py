"""What is taken for predictions of a classifier, and what it chose."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from footplate.evaluation import choices
from footplate.evaluation.choices import read_choices, recognize_task

RNG = np.random.default_rng(0)
SCORES = RNG.standard_normal((30, 4)).astype(np.float32)
LABELS = RNG.integers(0, 4, 30)
TOKENS = RNG.standard_normal((5, 6, 3))
TAGS = np.where(RNG.random((5, 6)) < 0.3, -100, RNG.integers(0, 3, (5, 6)))
FLAGS = RNG.random((30, 4)) < 0.4
ONES = RNG.integers(0, 2, 30)


def read(scores, labels):
    """Right classes, chosen classes and confidence of everything that counts."""
    columns = zip(*read_choices(recognize_task(scores, labels)), strict=True)
    return [np.concatenate(column) for column in columns]


def softmax(scores):
    shares = np.exp(scores)
    return shares / shares.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(
    ("predictions", "labels", "form", "num_classes"),
    [
        (SCORES, LABELS, "classes", 4),
        ((SCORES, TOKENS), LABELS, "classes", 4),
        ((SCORES,), (LABELS,), "classes", 4),
        (SCORES, LABELS[:, None], "classes", 4),
        (SCORES.argmax(1), LABELS, "classes", 4),
        (TOKENS, TAGS, "tokens", 3),
        (TOKENS.argmax(-1), TAGS, "tokens", 3),
        (np.where(TAGS == -100, -100, TOKENS.argmax(-1)), TAGS, "tokens", 3),
        (SCORES, FLAGS.astype(np.float32), "flags", 4),
        (SCORES, FLAGS, "flags", 4),
        (SCORES, np.eye(4)[LABELS], "classes", 4),  # one-hot
        (SCORES[:, 0], ONES, "classes", 2),
        (SCORES[:, :1], ONES.astype(np.float32), "classes", 2),
        (SCORES[:, :1], ONES[:, None].astype(bool), "classes", 2),
    ],
)
def test_predictions_of_a_classifier_are_recognized(predictions, labels, form, num_classes):
    task = recognize_task(predictions, labels)
    assert (task.form, task.num_classes) == (form, num_classes)


@pytest.mark.parametrize(
    ("predictions", "labels"),
    [
        (SCORES[:, 0], SCORES[:, 1]),  # regression
        (SCORES[:, :1], LABELS),  # one value for ratings from 0 to 3
        (1 / (1 + np.exp(-SCORES[:, 0])), ONES),  # probabilities or scores: nothing tells
        (SCORES, SCORES),
        ((SCORES, SCORES), (LABELS, LABELS)),  # start and end of an answer
        ([SCORES], [LABELS]),  # batches that were not joined
        (SCORES, LABELS[:-1]),
        (SCORES, None),
        (None, LABELS),
        (SCORES, LABELS + 1),  # a label beyond the scores
        (SCORES, LABELS - 1),
        (SCORES, np.zeros(30, np.int64)),  # a single class
        (SCORES[:0], LABELS[:0]),
        (SCORES, np.full(30, -100)),
        (RNG.standard_normal((4, 1001)), RNG.integers(0, 1001, 4)),  # words of a language
        (RNG.standard_normal((4, 6, 50)), RNG.integers(0, 50, (4, 6))),  # the next character, at every place
        (RNG.integers(0, 30_000, (4, 6)), RNG.integers(0, 30_000, (4, 6))),
        (RNG.integers(0, 50, (4, 6)), RNG.integers(0, 50, (4, 7))),
        (-1 - TOKENS.argmax(-1), TAGS),
        (RNG.standard_normal((5, 3, 4, 4)), RNG.integers(0, 3, (5, 4, 4))),  # masks of pictures
        (TOKENS[..., 0], np.where(TAGS > 1, 1, TAGS)),  # one score for each place of a text
        (np.array(["a", "b"], object), np.array([0, 1])),
    ],
)
def test_everything_else_is_left_alone(predictions, labels):
    assert recognize_task(predictions, labels) is None


def test_tokens_without_a_gap_need_names_for_their_classes():
    scores, labels = RNG.standard_normal((4, 6, 3)), RNG.integers(0, 3, (4, 6))
    assert recognize_task(scores, labels) is None
    assert recognize_task(scores, labels, num_names=3).form == "tokens"


def test_a_yes_or_no_for_each_named_class_is_not_taken_for_tokens():
    chosen = (SCORES > 0).astype(np.int64)
    assert recognize_task(chosen, FLAGS.astype(np.int64), num_names=4) is None


class Untouched(np.ndarray):
    """An array that may not be read."""

    def __array_ufunc__(self, *args, **kwargs):
        raise AssertionError("read")


def test_what_would_take_too_long_is_not_even_read():
    for scores, labels in ((SCORES, LABELS), (SCORES, FLAGS)):
        given = scores.view(Untouched), labels.view(Untouched)
        with pytest.raises(AssertionError, match="read"):
            recognize_task(*given)
        assert recognize_task(*given, most_seconds=1e-9) is None


def test_chosen_classes_are_many_by_their_numbers():
    labels = np.arange(200)
    assert recognize_task(labels, labels).num_classes == 200
    assert recognize_task(labels, labels, most_seconds=1e-9) is None


def test_a_regression_is_known_by_its_first_slice(monkeypatch):
    monkeypatch.setattr(choices, "MOST_AT_ONCE", 8)
    labels = np.ones((30, 4))
    labels[0, 0] = 0.5
    labels[1:] = np.nan  # which no slice after the first may reach
    seen = []
    monkeypatch.setattr(choices, "_is_counted", lambda part: seen.append(len(part)) or part != -100)
    assert recognize_task(SCORES, labels) is None
    assert seen == [2]


@pytest.mark.parametrize("at_once", [1, 7, 1 << 16])
def test_slices_of_any_size_give_the_same_choices(monkeypatch, at_once):
    monkeypatch.setattr(choices, "MOST_AT_ONCE", at_once)
    right, chosen, confidence = read(TOKENS, TAGS)
    counted = [(row, place) for row in range(5) for place in range(6) if TAGS[row, place] != -100]
    assert right.tolist() == [TAGS[at] for at in counted]
    assert chosen.tolist() == [max(range(3), key=lambda kind: TOKENS[at][kind]) for at in counted]
    expected = [1 / sum(math.exp(score - max(TOKENS[at])) for score in TOKENS[at]) for at in counted]
    np.testing.assert_allclose(confidence, expected, rtol=1e-12)


def test_probabilities_are_not_taken_for_scores():
    shares = softmax(SCORES)
    np.testing.assert_allclose(read(shares, LABELS)[2], shares.max(axis=1), rtol=1e-6)


def test_probabilities_are_known_beside_padding_and_what_is_not_a_number():
    shares, padded = softmax(TOKENS), softmax(TOKENS)
    padded[TAGS == -100] = -100
    np.testing.assert_allclose(read(padded, TAGS)[2], shares.max(axis=-1)[TAGS != -100], rtol=1e-12)
    shares = softmax(SCORES)
    shares[3, 1] = np.nan
    confidence = read(shares, LABELS)[2]
    assert np.isnan(confidence[3])
    np.testing.assert_allclose(np.delete(confidence, 3), np.delete(shares, 3, axis=0).max(axis=1), rtol=1e-6)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_rounded_probabilities_are_probabilities(kind):
    shares = torch.from_numpy(SCORES).repeat(40, 1).softmax(dim=-1).to(kind).float().numpy()
    np.testing.assert_array_equal(read(shares, np.tile(LABELS, 40))[2], shares.max(axis=1))


def test_one_probability_that_is_not_a_number_makes_no_scores_of_the_others():
    for shares, labels in ((softmax(SCORES)[:, 0], ONES), (softmax(SCORES), FLAGS)):
        shares[3] = np.nan
        assert recognize_task(shares, labels) is None


def test_blocks_of_choices_are_small_however_many_there_are():
    labels = np.arange(1_000_000) % 10
    sizes = [len(right) for right, _, _ in read_choices(recognize_task(labels, labels))]
    assert sum(sizes) == len(labels)
    assert max(sizes) <= 2 * choices.MOST_AT_ONCE


def test_half_precision_is_computed_in_single():
    found = read(SCORES.astype(np.float16), LABELS)[2]
    np.testing.assert_allclose(found, read(SCORES, LABELS)[2], atol=2e-3)
    assert found.dtype == np.float32


def test_one_score_says_yes_where_it_is_positive():
    right, chosen, confidence = read(SCORES[:, 0], ONES)
    assert right.tolist() == ONES.tolist()
    assert chosen.tolist() == [int(score > 0) for score in SCORES[:, 0]]
    sure = [1 / (1 + math.exp(-abs(float(score)))) for score in SCORES[:, 0]]
    np.testing.assert_allclose(confidence, sure, rtol=1e-6)


def test_a_large_file_of_scores_is_read_in_slices(tmp_path):
    scores = np.memmap(tmp_path / "scores", np.float32, "w+", shape=(30, 4))
    scores[:] = SCORES
    assert read(scores, LABELS)[1].tolist() == SCORES.argmax(1).tolist()
