"""Ranks of a run side by side: how much each did, and how long it waited."""

from __future__ import annotations

from typing import Any

from footplate.report.plain import as_number


class RankTable:
    """Sums over the logs of a run, from the last resume on: there may be more or fewer ranks than before."""

    def __init__(self) -> None:
        self._rows = 0.0  # of each rank
        self._sums: list[list[float]] = []

    def add(self, ranks: Any) -> None:
        """Add what one log says: rows of each rank, and of each the seconds it was busy and waited."""
        if not isinstance(ranks, dict) or not isinstance(ranks.get("times"), list):
            return
        given = [time for time in ranks["times"] if isinstance(time, list)]
        times = [[as_number(value) or 0.0 for value in time] for time in given]
        if any(len(time) != 2 for time in times):
            return
        if len(times) != len(self._sums):
            self._rows, self._sums = 0.0, [[0.0, 0.0] for _ in times]
        self._rows += as_number(ranks.get("rows")) or 0.0
        for sums, (busy, waited) in zip(self._sums, times, strict=True):
            sums[0] += busy
            sums[1] += waited

    def to_plain(self) -> list[dict[str, Any]]:
        """One entry per rank; the slowest is the one that was busy longest."""
        longest = max((busy for busy, _ in self._sums), default=0.0)
        return [
            {
                "rank": rank,
                "rows_per_second": self._rows / busy if busy else None,
                "busy": busy,
                "waited": waited,
                "is_slowest": busy == longest,
            }
            for rank, (busy, waited) in enumerate(self._sums)
        ]
