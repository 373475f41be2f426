"""What a service has got of a run already: after a kill, nothing twice and nothing missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from footplate.integrations.base import TrackerCallback
from footplate.integrations.run import Run


class KnowingTracker(TrackerCallback):
    """A tracker whose service can be asked what it has.

    A client that is killed loses what it had not written yet: what was sent is more than what is there. So a
    resumed run offers all its logs once more, and `known` leaves out those that are there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.known = KnownPoints()
        self._num_noted = 0

    def resume(self, run: Run) -> None:
        """Take up `run` from its first log; `open` finds out what of it is there."""
        super().resume(run)
        self._num_noted, run.num_sent = run.num_sent, 0

    def learn(self, run: Run, points: Iterable[tuple[str, int]] | None) -> None:
        """Remember the points that are there; where nobody knows (None), what was noted counts."""
        self.known = KnownPoints(points or ())
        if points is None:
            run.num_sent = self._num_noted


class KnownPoints:
    """The last step of each curve that a service has kept.

    Args:
        points: Curve and step of every point that is there.
    """

    def __init__(self, points: Iterable[tuple[str, int]] = ()) -> None:
        self._last_steps: dict[str, int] = {}
        for key, step in points:
            self._last_steps[key] = max(step, self._last_steps.get(key, step))

    def without(self, values: dict[str, Any], step: int) -> dict[str, Any]:
        """The values that are new at this step."""
        return {key: value for key, value in values.items() if step > self._last_steps.get(key, -1)}


def numbers(values: dict[str, Any]) -> dict[str, float]:
    """The values that make a curve."""
    return {key: value for key, value in values.items() if isinstance(value, (int, float))}


def as_table(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Rows with names as the names and rows of cells, numbers as they are and the rest as text."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return columns, [[_to_cell(row.get(column, "")) for column in columns] for row in rows]


def _to_cell(value: Any) -> Any:
    return value if isinstance(value, (int, float, str)) else str(value)
