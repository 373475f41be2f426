"""What a classifier chose for each row, token or label, read from the predictions of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from footplate.batch import IGNORED_LABEL

Array = npt.NDArray[Any]

MOST_CLASSES = 1000  # more than that are the words of a language, or the numbers of things
MOST_SCORES_AT_ONCE = 1 << 16  # small enough for the processor's cache
ROWS_TO_TRY = 1000  # when scores may be probabilities
# measured with numpy on one core: 1.1 to 1.3 ns for each score, and 25 to 35 ns for each row
SECONDS_PER_SCORE, SECONDS_PER_ROW = 1.3e-9, 35e-9


class Task(NamedTuple):
    """Predictions and labels that belong to classes.

    Args:
        form: "classes" with one label per row, "tokens" with several, "flags" with yes or no for each class.
        scores: One score per class and row or token; one per row if there are two classes; or chosen classes.
        labels: Class numbers with `IGNORED_LABEL` for what does not count; for flags 0 and 1.
        num_classes: How many classes there are.
    """

    form: str
    scores: Array
    labels: Array
    num_classes: int

    @property
    def are_chosen(self) -> bool:
        """Whether the predictions are classes already, without scores."""
        return self.scores.dtype.kind in "iub"

    @property
    def seconds(self) -> float:
        """About how long it takes to look through it all."""
        num_pairs = 0 if self.form == "flags" else self.num_classes**2
        return SECONDS_PER_SCORE * (self.scores.size + num_pairs) + SECONDS_PER_ROW * self.labels.size


class Choices(NamedTuple):
    """The right and the chosen class of everything that counts, and how sure the model was of its choice."""

    right: Array
    chosen: Array
    confidence: Array | None


def recognize_task(predictions: Any, labels: Any, num_names: int = 0) -> Task | None:
    """The task if these are predictions and labels of a classifier; None if it is not clear that they are.

    Args:
        predictions: Scores or chosen classes, or several arrays of which the first holds them.
        labels: The right classes.
        num_names: How many classes have a name; 0 if that is not known.
    """
    scores, right = _first_array(predictions), _first_array(labels, only=True)
    if scores is None or right is None or not right.size or len(scores) != len(right):
        return None
    if right.ndim == 2 and right.shape[1] == 1:
        right = right[:, 0]
    if scores.ndim == 2 and scores.shape[1] == 1:
        scores = scores[:, 0]
    if scores.dtype.kind in "iub":
        return _recognize_chosen(scores, right, num_names)
    if scores.dtype.kind != "f":
        return None
    if scores.ndim == 1 and right.ndim == 1:
        return _recognize_flags("classes", scores, right, 2, num_names)
    if scores.ndim == 2 and right.shape == scores.shape:
        return _recognize_flags("flags", scores, right, scores.shape[1], num_names)
    is_one = scores.ndim == 2 and right.ndim == 1
    is_many = scores.ndim == 3 and right.shape == scores.shape[:2]
    if not (is_one or is_many) or not 2 <= scores.shape[-1] <= MOST_CLASSES:
        return None
    form = "tokens" if is_many else "classes"
    return _check_labels(Task(form, scores, right, scores.shape[-1]), num_names)


def _first_array(value: Any, only: bool = False) -> Array | None:
    """The array, or the first of several; with `only`, several are none."""
    if isinstance(value, tuple) and value and (len(value) == 1 or not only):
        return _first_array(value[0])
    return value if isinstance(value, np.ndarray) and value.ndim > 0 else None


def _recognize_chosen(chosen: Array, right: Array, num_names: int) -> Task | None:
    if chosen.shape != right.shape or chosen.ndim > 2 or right.dtype.kind not in "iub":
        return None
    high = int(max(chosen.max(), right.max()))
    num_classes = max(high + 1, num_names)
    # padding fills the predictions of short rows too, where no label counts
    if num_classes > MOST_CLASSES or bool((chosen[right != IGNORED_LABEL] < 0).any()):
        return None
    if chosen.ndim == 2 and chosen.shape[1] == num_names and high <= 1:  # a yes or no for each class
        return None
    form = "tokens" if chosen.ndim == 2 else "classes"
    return _check_labels(Task(form, chosen, right, num_classes), num_names)


def _check_labels(task: Task, num_names: int) -> Task | None:
    """The task if its labels are classes; it takes two that occur for a comparison to say anything."""
    labels = task.labels
    if labels.dtype.kind not in "iub":
        return None
    counted = labels[labels != IGNORED_LABEL] if labels.dtype.kind == "i" else labels.reshape(-1)
    if not counted.size or counted.min() < 0 or counted.max() >= task.num_classes:
        return None
    if counted.min() == counted.max():
        return None
    # the next word of a text has a label at each place and no name: that is no class
    is_text = task.form == "tokens" and counted.size == labels.size and num_names != task.num_classes
    return None if is_text else task


def _recognize_flags(
    form: str, scores: Array, labels: Array, num_classes: int, num_names: int
) -> Task | None:
    """A task where each label is 0 or 1, and each score is positive where the model says 1."""
    is_ignored = labels == IGNORED_LABEL
    if form == "flags" and is_ignored.any() and num_names != num_classes:  # these may be places of a text
        return None
    if num_classes > MOST_CLASSES or not ((labels == 0) | (labels == 1) | is_ignored).all():
        return None
    if not (labels == 0).any() or not (labels == 1).any():
        return None
    if form == "flags" and bool(((labels == 1).sum(axis=1) == 1).all()) and not is_ignored.any():
        return Task("classes", scores, labels.argmax(axis=1), num_classes)  # one-hot
    # between 0 and 1 they may be probabilities or scores, where 1 begins at 0.5 or at 0: nothing tells which
    is_unclear = bool(((scores >= 0) & (scores <= 1)).all())
    return None if is_unclear else Task(form, scores, labels, num_classes)


def read_choices(task: Task) -> Choices:
    """What the model chose, without the labels that do not count; scores are read in slices."""
    if task.are_chosen:
        counted = _is_counted(task.labels)
        return Choices(_integers(task.labels[counted]), _integers(task.scores[counted]), None)
    parts = list(_read_slices(task))
    right, chosen, confidence = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Choices(right, chosen, confidence)


def read_flags(task: Task) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Of each slice of rows: what is true, what the model says, how sure it is, and what counts."""
    for scores, labels in _slices(task):
        yield labels == 1, scores > 0, _confidence_of_one(scores), _is_counted(labels)


def _slices(task: Task) -> Iterator[tuple[Array, Array]]:
    rows = max(1, MOST_SCORES_AT_ONCE * len(task.scores) // max(1, task.scores.size))
    for start in range(0, len(task.scores), rows):
        yield task.scores[start : start + rows], task.labels[start : start + rows]


def _read_slices(task: Task) -> Iterator[tuple[Array, Array, Array]]:
    are_probabilities = task.scores.ndim > 1 and _are_probabilities(task.scores[:ROWS_TO_TRY])
    for scores, labels in _slices(task):
        counted = _is_counted(labels)
        right = _integers(labels[counted])
        if scores.ndim == 1:
            yield right, (scores[counted] > 0).astype(np.int64), _confidence_of_one(scores[counted])
            continue
        kept = _at_least_single(scores[counted])
        chosen = kept.argmax(axis=1)
        highest = kept[np.arange(len(kept)), chosen]
        yield right, chosen, highest if are_probabilities else _confidence(kept, highest)


def _is_counted(labels: Array) -> Array:
    return np.not_equal(labels, IGNORED_LABEL)


def _integers(values: Array) -> Array:
    return values.astype(np.int64, copy=False)


def _at_least_single(scores: Array) -> Array:
    return scores.astype(np.float32) if scores.dtype.itemsize < 4 else scores


def _are_probabilities(scores: Array) -> bool:
    """Whether the rows are probabilities that add up to one."""
    flat = _at_least_single(scores.reshape(-1, scores.shape[-1]))
    sums = flat.sum(axis=1)
    return bool((flat >= 0).all() and (np.abs(sums - 1) < 1e-3).all())


def _confidence(scores: Array, highest: Array) -> Array:
    """The probability of the highest score of each row."""
    with np.errstate(invalid="ignore"):  # infinite scores: their rows are left out of the calibration
        powers = scores - highest[:, None]
        np.exp(powers, out=powers)
    return np.asarray(1 / powers.sum(axis=1))


def _confidence_of_one(scores: Array) -> Array:
    """The probability of what one score says, yes or no."""
    return np.asarray(1 / (1 + np.exp(-np.abs(_at_least_single(scores)))))
