"""Curves of bounded size: what is left out of a long run hides no peak and bends no mean."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from itertools import groupby
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
CAPACITY = 8000  # points of a curve before it is thinned to half of that


class Series:
    """One value over the steps of a run; lowest and highest points survive every thinning.

    Each point also knows the mean of all points it stands for, so that smoothing is not drawn to the peaks.
    """

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.values: list[float] = []
        self.means: list[float] = []
        self.counts: list[float] = []
        self.steps_not_finite: list[int] = []

    def add(self, step: int, value: float) -> None:
        """Append a point; a second one at the same step takes the place of the first."""
        if not math.isfinite(value):
            self.steps_not_finite.append(step)
            return
        value = float(f"{value:.6g}")
        if self.steps and self.steps[-1] >= step:
            self.cut(step - 1)
        self.steps.append(step)
        self.values.append(value)
        self.means.append(value)
        self.counts.append(1.0)
        if len(self.steps) > CAPACITY:
            self.thin(CAPACITY // 2)

    def cut(self, step: int) -> None:
        """Drop what lies past `step`."""
        end = bisect_right(self.steps, step)
        for column in (self.steps, self.values, self.means, self.counts):
            del column[end:]
        self.steps_not_finite = [s for s in self.steps_not_finite if s <= step]

    def thin(self, num_points: int) -> None:
        """Keep the lowest and the highest point of each of `num_points / 2` stretches of equal length."""
        if len(self.steps) <= num_points:
            return
        first, end = self.steps[0], len(self.steps) - 1
        width = (self.steps[-1] - first + 1) / max(num_points // 2, 1)
        thinned = Series()
        for _, stretch in groupby(range(end + 1), key=lambda i: int((self.steps[i] - first) / width)):
            members = list(stretch)
            count = sum(self.counts[i] for i in members)
            mean = float(f"{sum(self.means[i] * self.counts[i] for i in members) / count:.6g}")
            lowest = min(members, key=self.values.__getitem__)
            highest = max(members, key=self.values.__getitem__)
            kept = sorted({lowest, highest, *({0, end} & {members[0], members[-1]})})
            for i in kept:
                thinned.steps.append(self.steps[i])
                thinned.values.append(self.values[i])
                thinned.means.append(mean)
                thinned.counts.append(count / len(kept))
        self.steps, self.values = thinned.steps, thinned.values
        self.means, self.counts = thinned.means, thinned.counts

    def find_extreme(self, is_highest: bool) -> tuple[int, float] | None:
        """The step and the value of the highest or the lowest point."""
        if not self.values:
            return None
        value = max(self.values) if is_highest else min(self.values)
        return self.steps[self.values.index(value)], value

    def to_plain(self, num_points: int) -> dict[str, Any]:
        """The curve for the page, in at most about `num_points` points; this one stays as it is."""
        shown = self
        if len(self.steps) > num_points:
            shown = Series()
            shown.steps, shown.values = self.steps, self.values
            shown.means, shown.counts = self.means, self.counts
            shown.thin(num_points)
        plain: dict[str, Any] = {"steps": shown.steps, "values": shown.values}
        if any(count != 1.0 for count in shown.counts):
            plain["means"] = shown.means
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
            self.stretches[-1] = (step, _sum_parts(self.stretches[-1][1], seconds))
            self._logs_in_last += 1
        else:
            self.stretches.append((step, dict(seconds)))
            self._logs_in_last = 1
        if len(self.stretches) > self.capacity:
            self._merge_pairs()

    def _merge_pairs(self) -> None:
        pairs = [self.stretches[i : i + 2] for i in range(0, len(self.stretches), 2)]
        self.stretches = [(pair[-1][0], _sum_parts(*(parts for _, parts in pair))) for pair in pairs]
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
            "parts": {n: [float(f"{parts.get(n, 0.0):.4g}") for _, parts in self.stretches] for n in names},
        }


def _sum_parts(*seconds: dict[str, float]) -> dict[str, float]:
    names = dict.fromkeys(name for parts in seconds for name in parts)
    return {name: sum(parts.get(name, 0.0) for parts in seconds) for name in names}
