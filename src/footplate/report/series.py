"""Curves of bounded size: what is left out of a long run hides no peak and bends no mean."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np

Item = TypeVar("Item")
CAPACITY = 8000  # points of a curve before it is thinned to half of that


class Series:
    """One value over the steps of a run; lowest and highest points survive every thinning.

    A point that thinning left knows the mean of all points it stands for, so that smoothing is not drawn to
    the peaks.
    """

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.values: list[float] = []
        self.means: list[float] = []  # of the points that thinning left, which come first
        self.counts: list[float] = []
        self.steps_not_finite: list[int] = []

    def add(self, step: int, value: float) -> None:
        """Append a point; a second one at the same step takes the place of the first."""
        if not abs(value) <= sys.float_info.max:  # NaN, infinite, or a whole number that no float can hold
            self.steps_not_finite.append(step)
            return
        if self.steps and self.steps[-1] >= step:
            self.cut(step - 1)
        self.steps.append(step)
        self.values.append(value)
        if len(self.steps) > CAPACITY:
            self.thin(CAPACITY // 2)

    def cut(self, step: int) -> None:
        """Drop what lies past `step`."""
        end = bisect_right(self.steps, step)
        columns: tuple[list[Any], ...] = (self.steps, self.values, self.means, self.counts)
        for column in columns:
            del column[end:]
        self.steps_not_finite = [s for s in self.steps_not_finite if s <= step]

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
        stood_for = np.searchsorted(starts, kept, side="right") - 1
        totals = np.add.reduceat(counts, starts)

        self.steps, self.values = steps[kept].tolist(), values[kept].tolist()
        self.means = (np.add.reduceat(means * counts, starts) / totals)[stood_for].tolist()
        self.counts = (totals / np.bincount(stood_for, minlength=len(starts)))[stood_for].tolist()

    def find_extreme(self, is_highest: bool) -> tuple[int, float] | None:
        """The step and the value of the highest or the lowest point."""
        if not self.values:
            return None
        value = max(self.values) if is_highest else min(self.values)
        return self.steps[self.values.index(value)], _short(value)

    def to_plain(self, num_points: int) -> dict[str, Any]:
        """The curve for the page, in at most about `num_points` points; this one stays as it is."""
        shown = Series()
        shown.steps, shown.values, shown.means, shown.counts = (
            self.steps,
            self.values,
            self.means,
            self.counts,
        )
        shown.thin(num_points)
        plain: dict[str, Any] = {"steps": shown.steps, "values": [_short(value) for value in shown.values]}
        if shown.means:
            plain["means"] = [_short(mean) for mean in shown.means] + plain["values"][len(shown.means) :]
        if self.steps_not_finite:
            plain["not_finite"] = self.steps_not_finite[:200]
            plain["num_not_finite"] = len(self.steps_not_finite)
        return plain


class Spaced(Generic[Item]):
    """Every n-th item that is added, and the last; n doubles whenever there are too many.

    Args:
        capacity: How many are kept at most.
        step_of: The step of an item.
    """

    def __init__(self, capacity: int, step_of: Callable[[Item], int]) -> None:
        self.capacity, self.step_of = capacity, step_of
        self._kept: list[Item] = []
        self.last: Item | None = None
        self._stride, self._num_added = 1, 0

    def add(self, item: Item) -> None:
        """Take an item, which is the last one now."""
        self.last = item
        if self._num_added % self._stride == 0:
            self._kept.append(item)
        self._num_added += 1
        if len(self._kept) > self.capacity:
            self._kept = self._kept[::2]
            self._stride *= 2

    def cut(self, step: int) -> None:
        """Drop what lies past `step`."""
        self._kept = [item for item in self._kept if self.step_of(item) <= step]
        if self.last is not None and self.step_of(self.last) > step:
            self.last = self._kept[-1] if self._kept else None
        if not self._kept:
            self._stride, self._num_added = 1, 0

    @property
    def items(self) -> list[Item]:
        """What is kept, in order."""
        if self.last is None or self._kept[-1] is self.last:
            return list(self._kept)
        return [*self._kept, self.last]


class TimeParts:
    """Seconds by part of the loop, for stretches of a run that grow longer as it does.

    Args:
        capacity: How many stretches are kept at most.
    """

    def __init__(self, capacity: int = 240) -> None:
        self.capacity = capacity
        self.stretches: list[tuple[int, dict[str, float]]] = []  # the step each ends at, and its seconds
        self._logs_each, self._logs_in_last = 1, 0

    def add(self, step: int, seconds: dict[str, float]) -> None:
        """Count the seconds of one log."""
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

    def cut(self, step: int) -> None:
        """Drop what lies past `step`."""
        self.stretches = [stretch for stretch in self.stretches if stretch[0] <= step]
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
    """Six significant digits, which is more than a screen can show."""
    return float(f"{value:.6g}")
