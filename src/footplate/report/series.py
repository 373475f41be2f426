"""Curves of limited size, which keep the peaks and the means of a long run."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np

from footplate.resumed import ResumePoint

Item = TypeVar("Item")
CAPACITY = 8000  # a curve with more points than this is thinned to half


class Series:
    """One value over the steps of a run; thinning keeps the lowest and the highest points.

    A point that thinning kept has the mean of all points it replaces. Without it, a smoothed curve would be
    too close to the peaks.
    """

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.values: list[float] = []
        self.means: list[float] = []  # of the points that thinning kept, which come first
        self.counts: list[float] = []
        self.steps_not_finite: list[int] = []

    def add(self, step: int, value: float) -> None:
        """Append a point; a second one at the same step replaces the first."""
        if not abs(value) <= sys.float_info.max:  # NaN, infinite, or an integer too large for a float
            self.steps_not_finite.append(step)
            return
        if self.steps and self.steps[-1] >= step:
            self.cut(ResumePoint(step - 1))
        self.steps.append(step)
        self.values.append(value)
        if len(self.steps) > CAPACITY:
            self.thin(CAPACITY // 2)

    def cut(self, point: ResumePoint) -> None:
        """Drop what a resumed run makes again."""
        end = point.count_kept(self.steps)
        columns: tuple[list[Any], ...] = (self.steps, self.values, self.means, self.counts)
        for column in columns:
            del column[end:]
        self.steps_not_finite = point.keep(self.steps_not_finite, lambda step: step)

    def thin(self, num_points: int) -> None:
        """Keep the lowest and the highest point of each of `num_points / 2` stretches of equal length."""
        size = len(self.steps)
        if size <= num_points:
            return
        steps, values = np.asarray(self.steps, dtype=np.int64), np.asarray(self.values, dtype=np.float64)
        means, counts = values.copy(), np.ones(size)
        means[: len(self.means)], counts[: len(self.counts)] = self.means, self.counts

        length = steps[-1] - steps[0] + 1
        stretch = (steps - steps[0]) * max(num_points // 2, 1) // length  # of each point
        starts = np.flatnonzero(np.diff(stretch, prepend=-1))
        ends = np.append(starts[1:], size)
        by_value = np.lexsort((values, stretch))
        kept = np.unique(np.concatenate([by_value[starts], by_value[ends - 1], [0, size - 1]]))
        stretch_of_kept = np.searchsorted(starts, kept, side="right") - 1
        totals = np.add.reduceat(counts, starts)

        self.steps, self.values = steps[kept].tolist(), values[kept].tolist()
        self.means = (np.add.reduceat(means * counts, starts) / totals)[stretch_of_kept].tolist()
        num_kept = np.bincount(stretch_of_kept, minlength=len(starts))
        self.counts = (totals / num_kept)[stretch_of_kept].tolist()

    def find_extreme(self, is_highest: bool) -> tuple[int, float] | None:
        """The step and the value of the highest or the lowest point."""
        if not self.values:
            return None
        value = max(self.values) if is_highest else min(self.values)
        return self.steps[self.values.index(value)], _short(value)

    def to_plain(self, num_points: int) -> dict[str, Any]:
        """The curve for the page, with about `num_points` points at most; this object does not change."""
        shown = copy.copy(self)
        shown.thin(num_points)  # replaces the lists that both share, and does not change them
        plain: dict[str, Any] = {"steps": shown.steps, "values": [_short(value) for value in shown.values]}
        if shown.means:
            plain["means"] = [_short(mean) for mean in shown.means] + plain["values"][len(shown.means) :]
        if self.steps_not_finite:
            plain["not_finite"] = self.steps_not_finite[:200]
            plain["num_not_finite"] = len(self.steps_not_finite)
        return plain


class Spaced(Generic[Item]):
    """Every n-th item that is added, and the last one; n doubles when there are too many.

    Args:
        capacity: How many items are kept at most.
        step_of: The step of an item.
    """

    def __init__(self, capacity: int, step_of: Callable[[Item], int]) -> None:
        self.capacity, self.step_of = capacity, step_of
        self._kept: list[Item] = []
        self.last: Item | None = None
        self._stride, self._num_added = 1, 0

    def add(self, item: Item) -> None:
        """Add an item."""
        self.last = item
        if self._num_added % self._stride == 0:
            self._kept.append(item)
        self._num_added += 1
        if len(self._kept) > self.capacity:
            self._kept = self._kept[::2]
            self._stride *= 2

    def cut(self, point: ResumePoint) -> None:
        """Drop what a resumed run makes again."""
        self._kept = point.keep(self._kept, self.step_of)
        if self.last is not None and not point.keeps(self.step_of(self.last)):
            self.last = self._kept[-1] if self._kept else None
        if not self._kept:
            self._stride, self._num_added = 1, 0

    @property
    def items(self) -> list[Item]:
        """The items that are kept, in order."""
        if self.last is None or self._kept[-1] is self.last:
            return list(self._kept)
        return [*self._kept, self.last]


class TimeParts:
    """Seconds by part of the loop, for stretches of a run; in a long run the stretches are longer.

    Args:
        capacity: How many stretches are kept at most.
    """

    def __init__(self, capacity: int = 240) -> None:
        self.capacity = capacity
        self.stretches: list[tuple[int, dict[str, float]]] = []  # the step each ends at, and its seconds
        self._logs_each, self._logs_in_last = 1, 0

    def add(self, step: int, seconds: dict[str, float]) -> None:
        """Add the seconds of one log."""
        is_open = 0 < self._logs_in_last < self._logs_each
        if self.stretches and (is_open or self.stretches[-1][0] == step):
            _, sums = self.stretches[-1]
            _add_to(sums, seconds)
            self.stretches[-1] = (step, sums)
            self._logs_in_last += 1
        else:
            self.stretches.append((step, dict(seconds)))
            self._logs_in_last = 1
        if len(self.stretches) > self.capacity:
            self._merge_pairs()

    def _merge_pairs(self) -> None:
        pairs = [self.stretches[i : i + 2] for i in range(0, len(self.stretches), 2)]
        for pair in pairs:
            for _, parts in pair[1:]:
                _add_to(pair[0][1], parts)
        self.stretches = [(pair[-1][0], pair[0][1]) for pair in pairs]
        self._logs_each *= 2
        self._logs_in_last = self._logs_each

    def cut(self, point: ResumePoint) -> None:
        """Drop what a resumed run makes again."""
        self.stretches = point.keep(self.stretches, lambda stretch: stretch[0])
        self._logs_in_last = self._logs_each

    def to_plain(self) -> dict[str, Any]:
        """Steps, and seconds by part, as columns of equal length."""
        names = list(dict.fromkeys(name for _, parts in self.stretches for name in parts))
        return {
            "steps": [step for step, _ in self.stretches],
            "parts": {n: [_short(parts.get(n, 0.0)) for _, parts in self.stretches] for n in names},
        }


def _add_to(sums: dict[str, float], seconds: dict[str, float]) -> None:
    for name, value in seconds.items():
        sums[name] = sums.get(name, 0.0) + value


def _short(value: float) -> float:
    """The value with six significant digits: a screen cannot show more."""
    return float(f"{value:.6g}")
