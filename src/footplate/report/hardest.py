"""The hardest rows of a run, for its page: of what a journal holds, only what has the right form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from footplate.report.plain import as_number, numbers_in, plain_row
from footplate.resumed import ResumePoint

MAX_ROWS, MAX_COLUMNS, MAX_NAME, MAX_BINS = 100, 20, 60, 200
COUNTS = ("num_rows", "num_outliers", "num_nonfinite")
QUANTILES = ("min", "q1", "median", "q3", "p99", "max")
NUMBERS = (*COUNTS, "num_unlabelled", "total", "mean", "limit", "seconds")


class HardestKeeper:
    """Keeps the newest note of the hardest rows: a pass at the end of a run replaces an earlier one."""

    def __init__(self) -> None:
        self._found: dict[str, Any] | None = None
        self._step = 0

    def add(self, event: Mapping[str, Any]) -> None:
        """Add a note; one without rows or with wrong counts is ignored."""
        numbers = numbers_in({name: event.get(name) for name in NUMBERS})
        rows = event.get("rows")
        if not isinstance(rows, list) or any(numbers.get(name, -1) < 0 for name in COUNTS):
            return
        quantiles = numbers_in(event.get("quantiles"))
        self._step = event.get("step", 0)
        self._found = {
            **dict.fromkeys(NUMBERS),
            **numbers,
            "step": self._step,
            "is_whole": event.get("is_whole") is not False,
            "quantiles": {name: value for name, value in quantiles.items() if name in QUANTILES},
            "rows": [take_row(row) for row in rows[:MAX_ROWS] if isinstance(row, Mapping)],
            **take_bins(event),
        }

    def cut(self, point: ResumePoint) -> None:
        """Drop a note that a resumed run makes again."""
        if not point.keeps(self._step):
            self._found = None

    def to_plain(self) -> dict[str, Any] | None:
        """The note, in the form of JSON; None if there is none."""
        return self._found


def take_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    """A row with few columns, short names and short texts."""
    scalars = (str, int, float, bool, type(None))
    taken = {str(name)[:MAX_NAME]: row[name] for name in list(row)[:MAX_COLUMNS]}
    return plain_row({name: v if isinstance(v, scalars) else str(v) for name, v in taken.items()})


def take_bins(event: Mapping[str, Any]) -> dict[str, Any]:
    """How many rows have which loss: the counts, and where the first bin begins and the last one ends."""
    bins, edges = event.get("bins"), event.get("edges")
    if not isinstance(bins, list) or not isinstance(edges, list) or len(edges) != 2:
        return {"bins": [], "edges": []}
    ends = [as_number(edge) for edge in edges]
    counts = [as_number(count) for count in bins[:MAX_BINS]]
    is_right = all(count is not None and count >= 0 for count in counts)
    low, high = ends
    if not is_right or low is None or high is None or not low < high:
        return {"bins": [], "edges": []}
    return {"bins": counts, "edges": ends}
