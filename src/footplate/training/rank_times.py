"""How fast each rank is: what it did itself, and how long it waited for others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

APART = ("evaluation", "saving")  # not part of an update


class RankTime(NamedTuple):
    """The seconds of one rank since the last log."""

    busy: float
    waited: float


def compare_ranks(seconds_of_ranks: Sequence[Mapping[str, float]]) -> list[RankTime]:
    """Divide the time of each rank's updates into its own work and waiting.

    Ranks wait for each other where gradients are exchanged, in backward: what one spends there beyond the
    rank that is through first is taken as waiting.

    Args:
        seconds_of_ranks: Of each rank, what its stopwatch gave.
    """
    shortest = min(seconds.get("backward", 0.0) for seconds in seconds_of_ranks)
    times = []
    for seconds in seconds_of_ranks:
        total = sum(value for part, value in seconds.items() if part not in APART)
        waited = seconds.get("backward", 0.0) - shortest
        times.append(RankTime(round(total - waited, 6), round(waited, 6)))
    return times
