"""What a classifier chose for each row, token or label, read from the predictions of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from footplate.batch import IGNORED_LABEL

Array = npt.NDArray[Any]

MOST_CLASSES = 1000  # more than that are the words of a language, or the numbers of things
MOST_AT_ONCE = 1 << 16  # scores or labels, few enough for the processor's cache
SUM_TOLERANCE = 1 / 256  # bfloat16 rounds each probability by up to half of that
# measured with numpy on one core: 1.1 to 1.3 ns for each score, 25 to 35 ns for each row, 4 to 7 ns if chosen
SECONDS_PER_SCORE, SECONDS_PER_ROW, SECONDS_PER_CHOICE = 1.3e-9, 35e-9, 7e-9


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
        per_label = SECONDS_PER_CHOICE if self.are_chosen else SECONDS_PER_ROW
        return SECONDS_PER_SCORE * (self.scores.size + num_pairs) + per_label * self.labels.size


class Choices(NamedTuple):
    """The right and the chosen class of everything that counts, and how sure the model was of its choice."""

    right: Array
    chosen: Array
    confidence: Array | None


def recognize_task(
    predictions: Any, labels: Any, num_names: int = 0, most_seconds: float = math.inf
) -> Task | None:
    """The task if these are predictions and labels of a classifier; None if it is not clear that they are.

    Args:
        predictions: Scores or chosen classes, or several arrays of which the first holds them.
        labels: The right classes.
        num_names: How many classes have a name; 0 if that is not known.
        most_seconds: A task that takes longer is None too, before any score is read.
    """
    scores, right = _first_array(predictions), _first_array(labels, only=True)
    if scores is None or right is None or not right.size or len(scores) != len(right):
        return None
    if right.ndim == 2 and right.shape[1] == 1:
        right = right[:, 0]
    if scores.ndim == 2 and scores.shape[1] == 1:
        scores = scores[:, 0]
    task = _guess_task(scores, right)
    if task is None:
        return None
    if task.are_chosen:
        task = _count_chosen(task, num_names)
    if task is None or task.seconds > most_seconds:
        return None
    if not task.are_chosen and (task.form == "flags" or task.scores.ndim == 1):
        return _check_flags(task, num_names)
    return _check_labels(task, num_names)


def _guess_task(scores: Array, labels: Array) -> Task | None:
    """The task that has arrays of these shapes; of chosen classes, how many there are is not known yet."""
    if scores.dtype.kind in "iub":
        if scores.shape != labels.shape or scores.ndim > 2 or labels.dtype.kind not in "iub":
            return None
        return Task("tokens" if scores.ndim == 2 else "classes", scores, labels, 0)
    if scores.dtype.kind != "f":
        return None
    if scores.ndim == 1 and labels.ndim == 1:
        return Task("classes", scores, labels, 2)
    if not 2 <= scores.shape[-1] <= MOST_CLASSES:
        return None
    if scores.ndim == 2 and labels.shape == scores.shape:
        return Task("flags", scores, labels, scores.shape[1])
    if scores.ndim == 2 and labels.ndim == 1:
        return Task("classes", scores, labels, scores.shape[1])
    is_many = scores.ndim == 3 and labels.shape == scores.shape[:2]
    return Task("tokens", scores, labels, scores.shape[2]) if is_many else None


def _first_array(value: Any, only: bool = False) -> Array | None:
    """The array, or the first of several; with `only`, several are none."""
    if isinstance(value, tuple) and value and (len(value) == 1 or not only):
        return _first_array(value[0])
    return value if isinstance(value, np.ndarray) and value.ndim > 0 else None


def _count_chosen(task: Task, num_names: int) -> Task | None:
    """The task with the number of its classes."""
    high = -1
    for chosen, right in _slices(task):
        # padding fills the predictions of short rows too, where no label counts
        if bool((chosen[_is_counted(right)] < 0).any()):
            return None
        high = max(high, int(chosen.max()), int(right.max()))
    num_classes = max(high + 1, num_names)
    if num_classes > MOST_CLASSES:
        return None
    if task.scores.ndim == 2 and task.scores.shape[1] == num_names and high <= 1:  # yes or no for each class
        return None
    return task._replace(num_classes=num_classes)


def _check_labels(task: Task, num_names: int) -> Task | None:
    """The task if its labels are classes; it takes two that occur for a comparison to say anything."""
    if task.labels.dtype.kind not in "iub":
        return None
    low, high, num_counted = task.num_classes, -1, 0
    for _, labels in _slices(task, task.labels):
        counted = labels[_is_counted(labels)]
        if counted.size:
            low, high = min(low, int(counted.min())), max(high, int(counted.max()))
            num_counted += counted.size
    if not 0 <= low < high < task.num_classes:
        return None
    # the next word of a text has a label at each place and no name: that is no class
    is_text = task.form == "tokens" and num_counted == task.labels.size and num_names != task.num_classes
    return None if is_text else task


def _check_flags(task: Task, num_names: int) -> Task | None:
    """The task if each label is 0 or 1; each score is positive where the model says 1."""
    is_one_hot, is_unclear, has_gap, found = task.form == "flags", True, False, {0: False, 1: False}
    for scores, labels in _slices(task):
        are_ones, are_zeros, counted = labels == 1, labels == 0, _is_counted(labels)
        if not (are_ones | are_zeros | ~counted).all():
            return None
        found = {0: found[0] or bool(are_zeros.any()), 1: found[1] or bool(are_ones.any())}
        has_gap = has_gap or not counted.all()
        is_one_hot = is_one_hot and bool((are_ones.sum(axis=-1) == 1).all())
        is_unclear = is_unclear and not bool((counted & ((scores < 0) | (scores > 1))).any())
    if not all(found.values()):
        return None
    if is_one_hot and not has_gap:
        return task._replace(form="classes", labels=task.labels.argmax(axis=1))
    # one score for each place of a text has gaps; that for each class has none, or names
    is_text = task.form == "flags" and has_gap and num_names != task.num_classes
    # between 0 and 1 they may be probabilities or scores, where 1 begins at 0.5 or at 0: nothing tells which
    return None if is_text or is_unclear else task


def read_choices(task: Task) -> Iterator[Choices]:
    """What the model chose, without the labels that do not count, in blocks that keep memory small."""
    # each block is added to a table of all pairs, so it is not much smaller than that
    most, waiting, parts = max(MOST_AT_ONCE, task.num_classes**2 // 4), 0, []
    for part in _read_slices(task):
        parts.append(part)
        waiting += len(part.right)
        if waiting >= most:
            yield _join(parts)
            waiting, parts = 0, []
    if waiting:
        yield _join(parts)


def _join(parts: list[Choices]) -> Choices:
    right, chosen, confidence = zip(*parts, strict=True)
    sure = None if confidence[0] is None else np.concatenate(confidence)
    return Choices(np.concatenate(right), np.concatenate(chosen), sure)


def read_flags(task: Task) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Of each slice of rows: what is true, what the model says, how sure it is, and what counts."""
    for scores, labels in _slices(task):
        yield labels == 1, scores > 0, _confidence_of_one(scores), _is_counted(labels)


def _slices(task: Task, by: Array | None = None) -> Iterator[tuple[Array, Array]]:
    """Scores and labels of some rows at a time, so few that the scores, or another array given, are small."""
    size = (task.scores if by is None else by).size
    rows = max(1, MOST_AT_ONCE * len(task.scores) // max(1, size))
    for start in range(0, len(task.scores), rows):
        yield task.scores[start : start + rows], task.labels[start : start + rows]


def _read_slices(task: Task) -> Iterator[Choices]:
    are_probabilities: bool | None = None
    for scores, labels in _slices(task):
        counted = _is_counted(labels)
        right, kept = _integers(labels[counted]), scores[counted]
        if task.are_chosen:
            yield Choices(right, _integers(kept), None)
        elif kept.ndim == 1:
            yield Choices(right, (kept > 0).astype(np.int64), _confidence_of_one(kept))
        else:
            kept = _at_least_single(kept)
            chosen = kept.argmax(axis=1)
            highest = kept[np.arange(len(kept)), chosen]
            if are_probabilities is None:
                are_probabilities = _are_probabilities(kept)
            yield Choices(right, chosen, highest if are_probabilities else _confidence(kept, highest))


def _is_counted(labels: Array) -> Array:
    return np.not_equal(labels, IGNORED_LABEL)


def _integers(values: Array) -> Array:
    return values.astype(np.int64, copy=False)


def _at_least_single(scores: Array) -> Array:
    return scores.astype(np.float32) if scores.dtype.itemsize < 4 else scores


def _are_probabilities(scores: Array) -> bool | None:
    """Whether each row has probabilities that add up to one; None if there is no row to tell by."""
    known = scores[~np.isnan(scores).any(axis=1)]
    if not len(known):
        return None
    return bool((known >= 0).all() and (np.abs(known.sum(axis=1) - 1) < SUM_TOLERANCE).all())


def _confidence(scores: Array, highest: Array) -> Array:
    """The probability of the highest score of each row."""
    with np.errstate(invalid="ignore"):  # infinite scores: their rows are left out of the calibration
        powers = scores - highest[:, None]
        np.exp(powers, out=powers)
    return np.asarray(1 / powers.sum(axis=1))


def _confidence_of_one(scores: Array) -> Array:
    """The probability of what one score says, yes or no."""
    return np.asarray(1 / (1 + np.exp(-np.abs(_at_least_single(scores)))))
