"""The rows that a model finds hardest: what was found, as a table, as plain values, and as a file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from footplate.disk import replacing, set_aside_unless_file
from footplate.samples.table import format_table
from footplate.samples.text import plain_value

HARDEST_NAME = "hardest_rows.jsonl"
OUTLIER_RANGES = 3.0  # a loss is an outlier from so many quartile ranges above the third quartile
NUM_BINS = 40
MAX_NOTED_ROWS, MAX_NOTED_TEXT = 100, 1000
QUANTILES = {"min": 0.0, "q1": 0.25, "median": 0.5, "q3": 0.75, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True, repr=False, eq=False)
class HardestRows:
    """What one pass over the rows of a dataset found; printed, it is a table.

    Args:
        rows: The hardest first, and before them those whose loss is not finite: `row` (its number in the
            dataset), `loss` (of this row alone), `outlier`, then `input`, `target`, `prediction` and so on.
        indices: The numbers of all rows that have a loss, rising.
        losses: Their losses.
        total: Rows of the dataset; None for a stream.
        seconds: How long it took.
        passes: How many rows went through the model together: "batches", or "rows" alone.
        is_whole: Whether it looked at all the rows that it was to look at; a signal may end it.
        num_unlabelled: Further rows that have no loss, since all their labels are ignored.
    """

    rows: list[dict[str, Any]]
    indices: np.ndarray[Any, Any]
    losses: np.ndarray[Any, Any]
    total: int | None = None
    seconds: float = 0.0
    passes: str = "batches"
    is_whole: bool = True
    num_unlabelled: int = 0

    @property
    def num_rows(self) -> int:
        """How many rows have a loss."""
        return len(self.losses)

    @property
    def num_nonfinite(self) -> int:
        """How many rows have a loss that is NaN or infinite."""
        return int((~np.isfinite(self.losses)).sum())

    @property
    def mean(self) -> float | None:
        """The mean of the finite losses."""
        finite = self._finite()
        return float(finite.mean()) if len(finite) else None

    @property
    def quantiles(self) -> dict[str, float]:
        """Least, quartiles, the 99th percentile and the largest of the finite losses."""
        finite = self._finite()
        if not len(finite):
            return {}
        found = np.quantile(finite, list(QUANTILES.values()))
        return {name: float(value) for name, value in zip(QUANTILES, found, strict=True)}

    @property
    def limit(self) -> float | None:
        """Above it a loss is an outlier: three quartile ranges above the third quartile."""
        found = self.quantiles
        return found["q3"] + OUTLIER_RANGES * (found["q3"] - found["q1"]) if found else None

    @property
    def outliers(self) -> list[int]:
        """The numbers of the rows above the limit, and of those whose loss is not finite; the worst first."""
        limit = self.limit
        worth = np.where(np.isfinite(self.losses), self.losses, np.inf)
        places = np.flatnonzero(worth > (math.inf if limit is None else limit))
        places = np.union1d(places, np.flatnonzero(~np.isfinite(self.losses)))
        return [int(row) for row in self.indices[places[np.argsort(-worth[places], kind="stable")]]]

    def _finite(self) -> np.ndarray[Any, Any]:
        finite: np.ndarray[Any, Any] = self.losses[np.isfinite(self.losses)]
        return finite

    def to_dict(self) -> dict[str, Any]:
        """Everything but the losses of the other rows, as plain values that strict JSON can hold."""
        return {
            "rows": [{name: plain_value(value) for name, value in row.items()} for row in self.rows],
            "num_rows": self.num_rows,
            "total": self.total,
            "num_outliers": len(self.outliers),
            "num_nonfinite": self.num_nonfinite,
            "num_unlabelled": self.num_unlabelled,
            "mean": self.mean,
            "quantiles": self.quantiles,
            "limit": self.limit,
            "seconds": round(self.seconds, 3),
            "passes": self.passes,
            "is_whole": self.is_whole,
        }

    def to_note(self) -> dict[str, Any]:
        """What a journal keeps: as `to_dict`, with texts cut, and the number of rows by their loss."""
        found = self.to_dict()
        shown = found["rows"][:MAX_NOTED_ROWS]
        found["rows"] = [{name: shorten_text(value) for name, value in row.items()} for row in shown]
        finite = self._finite()
        edges = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
        counts = np.histogram(finite, NUM_BINS, edges)[0].tolist() if edges[0] < edges[1] else []
        return {**found, "bins": counts, "edges": list(edges)}

    def __repr__(self) -> str:
        return self.format().lstrip()

    def format(self, max_rows: int | None = None, width: int = 120, in_color: bool = False) -> str:
        """The table: a line about all rows, then the hardest.

        Args:
            max_rows: How many rows to show; None for all that were kept.
            width: Columns of the terminal.
            in_color: Colour wrong rows.
        """
        shown = self.rows[:max_rows]
        flags = [{name: value for name, value in row.items() if name != "outlier"} for row in shown]
        return format_table(f"\n{self.describe()}", flags, width, in_color)

    def describe(self) -> str:
        """All rows in one sentence or two."""
        of_all = "" if self.total in (None, self.num_rows) else f" of {self.total:,}"
        text = f"The hardest of {self.num_rows:,}{of_all} rows"
        found = self.quantiles
        if found:
            text += f": median loss {found['median']:.4g}, mean {self.mean:.4g}"
            text += f", {len(self.outliers):,} {name_outliers(len(self.outliers))} above {self.limit:.4g}"
        if self.num_nonfinite:
            text += f", {self.num_nonfinite:,} not finite"
        if self.num_unlabelled:
            text += f", {self.num_unlabelled:,} without a label that counts"
        end = "" if self.is_whole else "; it was ended early"
        return f"{text} (one pass, {self.seconds:.1f} s{end})"


def name_outliers(count: int) -> str:
    """The word for so many."""
    return "outlier" if count == 1 else "outliers"


def shorten_text(value: Any) -> Any:
    """A value with a long text cut."""
    is_long = isinstance(value, str) and len(value) > MAX_NOTED_TEXT
    return value[: MAX_NOTED_TEXT - 1] + "…" if is_long else value


def write_hardest(found: HardestRows, folder: str | os.PathLike[str], step: int) -> Path:
    """Write one line for each of the hardest rows, nothing cut, in the place of an earlier file."""
    path = Path(os.path.abspath(folder), HARDEST_NAME)
    rows: Sequence[dict[str, Any]] = found.to_dict()["rows"]
    lines = [json.dumps({"step": step, **row}, ensure_ascii=False) + "\n" for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    set_aside_unless_file(path)
    with replacing(path) as file:
        # UTF-8 cannot hold half a surrogate pair, which a tokenizer may give: write it as a JSON escape
        file.write("".join(lines).encode("utf-8", "backslashreplace"))
    return path
