"""What losses say that were measured while the rate rose: where they fall fastest, and if that is sure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

MIN_POINTS = 10
REACH = 0.03  # of the points that were planned: how far the mean of neighbours reaches
MIN_FALL = 0.01  # of the size of the loss: less is as good as nothing
SIGMAS = 4.0  # how many times what chance does to the smoothed loss a fall must be
MIN_ROOM = 0.1  # of the size of the loss: how far above its start a loss counts as it is, at least
BEGIN_OF_FALL = 0.1  # the share of the fall that is over where the search for the steepest place begins
NUM_EDGE = 3  # points at the ends of a curve that say too little

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Findings:
    """Places on a curve, by the number of the point; None where there is no such place.

    Args:
        smoothed: The losses, each a mean of its neighbours; those far above the start are cut off before.
        start: The loss at first.
        lowest: Where the smoothed loss is lowest.
        steepest: Where it falls fastest.
        diverges: From where on it stays above its start.
        problem: Why there is no steepest place: "few", "rises", "flat", "noisy" or "falls on"; else empty.
    """

    smoothed: tuple[float, ...]
    start: float | None = None
    lowest: int | None = None
    steepest: int | None = None
    diverges: int | None = None
    problem: str = ""


def study(losses: Sequence[float], num_planned: int) -> Findings:
    """Smooth a curve and find the places in it.

    Args:
        losses: The finite losses, one for each rate, in rising order.
        num_planned: How many there would have been, had the sweep not ended before.
    """
    values = np.asarray(losses, dtype=np.float64)
    if len(values) < MIN_POINTS:
        return Findings(tuple(values.tolist()), problem="few")
    reach = max(1.5, REACH * num_planned)
    num_first = max(5, len(values) // 10)
    start = float(np.median(values[:num_first]))
    # an explosion must not reach back into the mean of the points before it
    values = np.minimum(values, start + max(start - float(values.min()), MIN_ROOM * abs(start)))
    smoothed, slopes, spreads = smooth(values, reach)
    lowest = int(np.argmin(smoothed))
    calm = max(lowest + 1, len(values) // 3, MIN_POINTS)  # beyond the lowest place the loss may be wild
    noise = SIGMAS * float(np.std((values - smoothed)[:calm]))
    least = MIN_FALL * abs(start)
    # what chance does to the lowest place, and to the median at first
    chance = noise * math.sqrt(float(spreads[lowest]) ** 2 + math.pi / 2 / num_first)
    diverges = find_last_rise(smoothed, start + max(noise * float(spreads.min()), least), lowest)
    found = Findings(tuple(smoothed.tolist()), start, lowest, diverges=diverges)
    fall = start - float(smoothed[lowest])
    if lowest < num_first or fall <= max(chance, least):
        is_early = diverges is not None and diverges < max(len(values) // 3, num_planned // 4)
        problem = "rises" if is_early else "noisy" if chance > least else "flat"
        return replace(found, lowest=None, problem=problem)
    # from where the loss falls for good: before, chance makes the steepest places
    above = np.flatnonzero(smoothed[:lowest] >= start - BEGIN_OF_FALL * fall)
    begin = max(NUM_EDGE, int(above[-1]) if len(above) else 0)
    steepest = begin + int(np.argmin(slopes[begin : max(lowest, begin) + 1]))
    if steepest >= len(values) - NUM_EDGE:
        return replace(found, problem="falls on")
    return replace(found, steepest=steepest)


def smooth(values: Array, reach: float) -> tuple[Array, Array, Array]:
    """The value and the slope of a line through the neighbours of each point, by their distance.

    A mean of the past alone would come too late, and show the fall at rates that are too high. A line has no
    bias at the ends, where a mean of neighbours would have one. The third array says how much of the noise of
    a point is left in each value: more at the ends, where neighbours are on one side.
    """
    means, slopes, spreads = np.empty_like(values), np.empty_like(values), np.empty_like(values)
    window = math.ceil(3 * reach)
    for index in range(len(values)):
        first = max(0, index - window)
        near = values[first : index + window + 1]
        away = np.arange(first, first + len(near)) - float(index)
        weights = np.exp(-0.5 * (away / reach) ** 2)
        weights /= weights.sum()
        middle = weights @ away
        tilts = weights * (away - middle) / (weights @ (away - middle) ** 2)
        slopes[index] = tilts @ near
        shares = weights - middle * tilts  # of each neighbour in the value
        means[index], spreads[index] = shares @ near, math.sqrt(float(shares @ shares))
    return means, slopes, spreads


def find_last_rise(smoothed: Array, limit: float, lowest: int) -> int | None:
    """From where on, after the lowest place, the loss stays above a limit; None if it does not."""
    below = np.flatnonzero(smoothed <= limit)
    begin = max(lowest, int(below[-1]) if len(below) else 0) + 1
    return begin if begin < len(smoothed) else None
