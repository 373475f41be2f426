"""What is wrong with the input of a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MAX_NAMED = 5


class TaskError(ValueError):
    """A mistake in flags or data; its text names file, row and remedy, and no traceback is needed."""


class BadRow(NamedTuple):
    """A row that cannot be used, counted from 1, and why."""

    row: int
    problem: str


def describe_bad_rows(source: str, bad: Sequence[BadRow], num_rows: int) -> str:
    """What to say of rows that cannot be used."""
    named = "; ".join(f"row {row}: {problem}" for row, problem in bad[:MAX_NAMED])
    more = f"; and {len(bad) - MAX_NAMED:,} more" if len(bad) > MAX_NAMED else ""
    return f"{source}: {len(bad):,} of {num_rows:,} rows cannot be used: {named}{more}."
