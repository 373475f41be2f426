"""The largest batch that a dataset can give: its longest rows, found in a bounded time."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from footplate.batch import find_length
from footplate.data.lengths import Lengths, find_lengths
from footplate.data.plain_rows import is_table, parts_of

SECONDS = 2.0  # rows are read for so long where only rows themselves can tell their length


class Longest(NamedTuple):
    """Which rows of a dataset are the longest."""

    indices: list[int]  # longest first
    length: int  # of the longest
    num_measured: int
    num_rows: int
    shortest: Sequence[int] = ()  # as many rows, some again if they are few; empty where none is shorter

    @property
    def is_sure(self) -> bool:
        """Whether every row was measured."""
        return self.num_measured == self.num_rows


def find_longest(
    dataset: Any,
    num_rows: int,
    column: str | None = None,
    names: Sequence[str] = (),
    seconds: float = SECONDS,
) -> Longest:
    """The longest rows, by the cheapest way that the dataset allows.

    Args:
        dataset: A map-style dataset with a length.
        num_rows: How many rows to find.
        column: Where lengths are stored already, if they are (`length_column_name`).
        names: What the model takes, its main input first: only these entries of a row count, if it has any.
        seconds: For how long to read rows; those are taken from all over the dataset.
    """
    total = find_length(dataset) or 0
    lengths = _known_lengths(dataset, column, next(iter(names), None))
    if lengths is None:
        measured = _measure_rows(dataset, total, column, names, seconds)
        rows = np.array(sorted(measured), dtype=np.int64)
        lengths = np.array([measured[row] for row in rows.tolist()], dtype=np.int64)
    else:
        rows = np.arange(0)
    if not len(lengths):
        return Longest([], 0, 0, total)
    places = _rank(lengths, num_rows)
    indices = rows[places] if len(rows) else places
    longest = int(lengths[places[0]])
    least, shortest = int(lengths.min()), []
    if least < longest:
        last = np.resize(np.flatnonzero(lengths == least)[:num_rows], num_rows)
        shortest = (rows[last] if len(rows) else last).tolist()
    return Longest(indices.tolist(), longest, len(lengths), total, shortest)


def _rank(lengths: Lengths, num_rows: int) -> Lengths:
    """The places of the longest rows, the longest first; of equally long ones the first."""
    if num_rows < len(lengths):  # to sort all rows of large data takes minutes
        least = np.partition(lengths, -num_rows)[-num_rows]
        longer = np.flatnonzero(lengths > least)
        places = np.concatenate([longer, np.flatnonzero(lengths == least)[: num_rows - len(longer)]])
    else:
        places = np.arange(len(lengths))
    return places[np.argsort(-lengths[places], kind="stable")]


def find_fullest(lengths: Any, batches: Sequence[list[int]]) -> list[int]:
    """The batch with the most tokens, where each row counts as long as the longest of its batch."""
    return max(batches, key=lambda rows: len(rows) * max(int(lengths[row]) for row in rows), default=[])


def measure_row(row: Any, column: str | None = None, names: Sequence[str] = ()) -> int:
    """How much a row holds: what its column of lengths says, else all its items together."""
    if isinstance(row, Mapping):
        stated = None if column is None else _as_length(row.get(column))
        if stated is not None:
            return stated
        counted = [row[name] for name in names if name in row]
        return sum(measure_row(value) for value in counted or row.values())
    if isinstance(row, (torch.Tensor, np.ndarray)):
        return int(row.numel() if isinstance(row, torch.Tensor) else row.size)
    if isinstance(row, (list, tuple)):
        return sum(measure_row(value) for value in row)
    return len(row) if isinstance(row, (str, bytes)) else 1


def _known_lengths(dataset: Any, column: str | None, name: str | None) -> Lengths | None:
    """The lengths of all rows where no row must be read; None if only rows can tell."""
    if not all(map(is_table, parts_of(dataset))):
        return None
    for stated in dict.fromkeys((column, None)):
        try:
            with np.errstate(invalid="ignore"):  # what is not a number counts as short
                return find_lengths(dataset, stated, name, may_read=False)
        except (ValueError, TypeError, NotImplementedError):  # neither such numbers nor such an input
            continue
    return None


def _as_length(value: Any) -> int | None:
    """What a column of lengths says; None if that is no number, as where texts have a column of that name."""
    try:
        return None if isinstance(value, (str, bytes)) else int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _measure_rows(
    dataset: Any, total: int, column: str | None, names: Sequence[str], seconds: float
) -> dict[int, int]:
    """The size of as many rows as can be read in the time, each by its index."""
    end, measured = time.monotonic() + seconds, {}
    # steps of the golden section come to every row once, from all over the data, without a list of them
    stride = max(int(total * 0.6180339887), 1)
    while math.gcd(stride, total) > 1:
        stride += 1
    for index in (number * stride % total for number in range(total)):
        measured[index] = measure_row(dataset[index], column, names)
        if time.monotonic() >= end:
            break
    return measured
