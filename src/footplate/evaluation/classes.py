"""How well each class is predicted: counts, precision, recall, F1, confusions and calibration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from footplate.evaluation.choices import Array, Task, read_choices, read_flags, recognize_task

NUM_BINS = 10
MOST_LISTED = 50  # with more classes, an event holds those with the lowest F1 and the most frequent ones
MOST_CELLS, MOST_CELLS_OF_MANY = 400, 20  # confusions in an event; of more classes than are listed
MOST_CHARACTERS = 40  # of a name in an event


@dataclass(frozen=True)
class Calibration:
    """How sure a model was, and how often it was right then.

    Args:
        counts: Choices by confidence, in bins of equal width from 0 to 1.
        right: How many of them were right.
        confidence: Their mean confidence; 0 in an empty bin.
    """

    counts: Array
    right: Array
    confidence: Array

    @property
    def error(self) -> float:
        """The expected calibration error: how far share and confidence are apart, on average over choices."""
        gaps = np.abs(self.right - self.confidence * self.counts)
        return float(gaps.sum() / max(1, self.counts.sum()))


@dataclass(frozen=True)
class ClassSummary:
    """How well each class is predicted. Classes that do not occur have a score of 0.

    Args:
        form: "classes" with one label per row, "tokens" with several, "flags" with yes or no for each class.
        names: What the classes are called; None if they have numbers alone.
        num_items: Rows, tokens, or rows of flags that counted.
        num_right: How many of them were predicted right; of flags, rows that were right in every class.
        support: Of each class, how often it was right.
        predicted: How often it was predicted.
        hits: How often both.
        matrix: How often a class (row) was predicted as another (column); None for flags.
        calibration: None if there are no scores.
    """

    form: str
    names: Sequence[str] | None
    num_items: int
    num_right: int
    support: Array
    predicted: Array
    hits: Array
    matrix: Array | None
    calibration: Calibration | None

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.support)

    @property
    def accuracy(self) -> float:
        """The share of what was predicted right."""
        return self.num_right / max(1, self.num_items)

    @property
    def precision(self) -> Array:
        """Of each class, the share of its predictions that were right."""
        return _divide(self.hits, self.predicted)

    @property
    def recall(self) -> Array:
        """Of each class, the share that was found."""
        return _divide(self.hits, self.support)

    @property
    def f1(self) -> Array:
        """The harmonic mean of precision and recall of each class."""
        return _divide(2 * self.hits, self.support + self.predicted)

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the classes that occur in labels or predictions."""
        occurs = self.support + self.predicted > 0
        return float(self.f1[occurs].mean()) if occurs.any() else 0.0

    def name(self, number: int) -> str:
        """What a class is called."""
        return str(number) if self.names is None else str(self.names[number])

    def confusions(self, most: int = 10) -> list[tuple[str, str, int]]:
        """The most frequent confusions: the right class, the one that was predicted, and how often.

        Args:
            most: How many at most.
        """
        return [(self.name(right), self.name(other), count) for right, other, count in self._find_cells(most)]

    def _find_cells(self, most: int) -> list[tuple[int, int, int]]:
        if self.matrix is None:
            return []
        rows, columns = np.nonzero(self.matrix)
        is_wrong = rows != columns
        rows, columns = rows[is_wrong], columns[is_wrong]
        counts = self.matrix[rows, columns]
        order = np.argsort(-counts, kind="stable")[:most]
        return list(zip(rows[order].tolist(), columns[order].tolist(), counts[order].tolist(), strict=True))

    def to_event(self) -> dict[str, Any]:
        """What the journal keeps: a few KB at most, however many classes there are."""
        is_whole = self.num_classes <= MOST_LISTED
        cells = self._find_cells(MOST_CELLS if is_whole else MOST_CELLS_OF_MANY)
        listed = list(range(self.num_classes)) if is_whole else self._choose_listed(cells)
        event: dict[str, Any] = {
            "form": self.form,
            "num_items": self.num_items,
            "num_right": self.num_right,
            "num_classes": self.num_classes,
            "macro_f1": round(self.macro_f1, 4),
            "listed": listed,
            "names": self._name_listed(listed),
            **{name: getattr(self, name)[listed].tolist() for name in ("support", "predicted", "hits")},
        }
        if self.matrix is not None:
            event |= {"cells": cells, "has_all_cells": is_whole and len(cells) < MOST_CELLS}
        if self.calibration is not None:
            counts, right = self.calibration.counts.tolist(), self.calibration.right.tolist()
            means = [round(value, 4) for value in self.calibration.confidence.tolist()]
            event["bins"] = list(zip(counts, right, means, strict=True))
            event["calibration_error"] = round(self.calibration.error, 4)
        return event

    def _name_listed(self, listed: list[int]) -> list[str]:
        """Short names; where one would be that of another class too, the number of its class follows."""
        if self.names is None:
            return [str(number) for number in listed]
        short = [_shorten(str(name)) for name in self.names]
        times = Counter(short)
        return [
            short[number] if times[short[number]] == 1 else _shorten(self.name(number), f" ({number})")
            for number in listed
        ]

    def _choose_listed(self, cells: list[tuple[int, int, int]]) -> list[int]:
        """Of many classes, those with the lowest F1, the most frequent ones, and those in these cells."""
        half = MOST_LISTED // 2
        occurring = np.flatnonzero(self.support)
        worst = occurring[np.argsort(self.f1[occurring], kind="stable")[:half]]
        frequent = np.argsort(-self.support, kind="stable")[:half]
        confused = [number for right, other, _ in cells for number in (right, other)]
        return sorted({*worst.tolist(), *frequent.tolist(), *confused})


def summarize_classes(
    predictions: Any, labels: Any, names: Sequence[str] | None = None
) -> ClassSummary | None:
    """How well each class is predicted; None if these are not predictions of a classifier.

    Args:
        predictions: Scores `[rows, classes]` or `[rows, tokens, classes]`, one score per row, or the chosen
            classes; of a tuple, the first array.
        labels: Class numbers, -100 where one does not count; or 0 and 1 for each class.
        names: What the classes are called, in their order.
    """
    task = recognize_task(predictions, labels, len(names or ()))
    return None if task is None else summarize_task(task, names)


def summarize_task(task: Task, names: Sequence[str] | None = None) -> ClassSummary:
    """How well each class of a task is predicted; names are used if there is one for each class."""
    names = names if names is not None and len(names) == task.num_classes else None
    if task.form == "flags":
        return _summarize_flags(task, names)
    num_classes = task.num_classes
    counts, bins = None, np.zeros((3, NUM_BINS))
    for right, chosen, confidence in read_choices(task):
        found = np.bincount(right * num_classes + chosen, minlength=num_classes**2)
        counts = found if counts is None else np.add(counts, found, out=counts)
        if confidence is not None:
            bins += _count_bins(right == chosen, confidence)
    assert counts is not None  # some labels of a task count
    matrix = counts.reshape(num_classes, num_classes)
    hits = matrix.diagonal().copy()
    calibration = None if task.are_chosen else _calibrate(bins)
    totals = matrix.sum(axis=1), matrix.sum(axis=0), hits
    return ClassSummary(task.form, names, int(matrix.sum()), int(hits.sum()), *totals, matrix, calibration)


def _summarize_flags(task: Task, names: Sequence[str] | None) -> ClassSummary:
    support, predicted, hits = np.zeros((3, task.num_classes), dtype=np.int64)
    num_right, bins = 0, np.zeros((3, NUM_BINS))
    for is_true, is_said, confidence, counted in read_flags(task):
        is_right = is_true == is_said
        support += (is_true & counted).sum(axis=0)
        predicted += (is_said & counted).sum(axis=0)
        hits += (is_true & is_said & counted).sum(axis=0)
        num_right += int((is_right | ~counted).all(axis=1).sum())
        bins += _count_bins(is_right[counted], confidence[counted])
    return ClassSummary(
        "flags", names, len(task.labels), num_right, support, predicted, hits, None, _calibrate(bins)
    )


def _count_bins(is_right: Array, confidence: Array) -> Array:
    """Of each bin of confidence: how many choices, how many right ones, and the sum of their confidence."""
    is_known = np.isfinite(confidence)
    if not is_known.all():
        is_right, confidence = is_right[is_known], confidence[is_known]
    places = np.minimum((confidence * NUM_BINS).astype(np.int64), NUM_BINS - 1)
    columns = (None, is_right, confidence)
    return np.stack([np.bincount(places, weights, NUM_BINS) for weights in columns])


def _calibrate(bins: Array) -> Calibration:
    counts, right, sums = bins
    return Calibration(counts.astype(np.int64), right.astype(np.int64), _divide(sums, counts))


def _divide(part: Array, whole: Array) -> Array:
    """The quotients, 0 where the divisor is 0."""
    return np.divide(part, whole, out=np.zeros(len(whole)), where=whole > 0)


def _shorten(name: str, end: str = "") -> str:
    """The name, cut to so many characters that there is room for the end."""
    most = MOST_CHARACTERS - len(end)
    return (name if len(name) <= most else name[: most - 1] + "…") + end
