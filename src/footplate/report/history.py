"""The log of a run as columns: each key that was logged, with its steps and values."""

from __future__ import annotations

import csv
import importlib
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from footplate.report.files import save_text

FIRST_COLUMNS = ("step", "epoch")


class History:
    """A log history arranged by key.

    Args:
        log_history: The entries, as `state.log_history` holds them.
    """

    def __init__(self, log_history: Sequence[Mapping[str, Any]]) -> None:
        self._entries = log_history

    @property
    def columns(self) -> list[str]:
        """Every key that was logged, step and epoch first."""
        keys = dict.fromkeys(key for entry in self._entries for key in entry)
        first = [key for key in FIRST_COLUMNS if key in keys]
        return first + [key for key in keys if key not in FIRST_COLUMNS]

    def __getitem__(self, key: str) -> list[Any]:
        values = [entry[key] for entry in self._entries if key in entry]
        if not values:
            raise KeyError(f"{key!r} was not logged; these were: {', '.join(self.columns) or 'none'}.")
        return values

    def __contains__(self, key: object) -> bool:
        return any(key in entry for entry in self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self._entries)

    def steps(self, key: str) -> list[int]:
        """The steps at which `key` was logged, one for each of its values."""
        self[key]  # raises if it was not logged
        return [entry.get("step", 0) for entry in self._entries if key in entry]

    def to_dict(self) -> dict[str, dict[str, list[Any]]]:
        """Steps and values of every column except `step`."""
        return {key: {"steps": self.steps(key), "values": self[key]} for key in self.columns if key != "step"}

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write one line per log, in their order; a cell is empty if a log does not have the key.

        Text that a spreadsheet would compute gets an apostrophe before it.
        """
        text = io.StringIO()
        columns = self.columns
        writer = csv.writer(text)
        writer.writerow([_as_cell(key) for key in columns])
        writer.writerows([_as_cell(entry.get(key, "")) for key in columns] for entry in self._entries)
        save_text(text.getvalue().encode("utf-8", "backslashreplace").decode("utf-8"), path)

    def to_pandas(self) -> Any:
        """A data frame with one row per log."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as error:
            raise ImportError("to_pandas() needs pandas: pip install pandas.") from error
        return pandas.DataFrame(list(self._entries), columns=self.columns)

    def __repr__(self) -> str:
        rows: list[tuple[str, ...]] = [("column", "logs", "last", "lowest", "highest")]
        for key in self.columns:
            values = self[key]
            numbers = [value for value in values if isinstance(value, (int, float))]
            extremes = (min(numbers), max(numbers)) if numbers else ("", "")
            rows.append((key, str(len(values)), *(_short(value) for value in (values[-1], *extremes))))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for name, *cells in rows:
            padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
            lines.append("  ".join([name.ljust(widths[0]), *padded]))
        return "\n".join([f"History of {len(self)} logs", *lines])


def _as_cell(value: Any) -> Any:
    """The value for a table; a spreadsheet takes text that begins with one of these signs for a formula."""
    if isinstance(value, (int, float)) or not str(value).startswith(("=", "+", "-", "@", "\t", "\r")):
        return value
    return f"'{value}"


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return text if len(text) <= 24 else text[:23] + "…"
