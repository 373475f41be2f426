"""The largest batch that a dataset can give: its longest rows, found in a bounded time."""

from __future__ import annotations

import copy
import math
import sys
import time
from collections import UserDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset

from footplate.batch import find_length
from footplate.data.lengths import Lengths, find_lengths

SECONDS = 2.0  # rows are read for so long where only rows themselves can tell their length


NUM_LOOKED_AT = 100  # rows of a list, for code that they may run

_CONSTANT = (bool, int, float, complex, str, bytes, range)
_CONSTANT_IN = ("datetime", "decimal", "pathlib", "uuid")


class NotPlain(Exception):
    """A row holds something that can be copied only by code of its own."""


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


def runs_no_code(dataset: Any) -> bool:
    """Whether rows can be read without code of the user's: of tables and lists, and of parts of them.

    A subclass of any of these may do anything when it is asked for a row, and so may a row.
    """
    if type(dataset) is Subset:
        return runs_no_code(dataset.dataset)
    if type(dataset) is ConcatDataset:
        return all(map(runs_no_code, dataset.datasets))
    if type(dataset) in (list, tuple):
        return all(_is_known(value) for row in dataset[:NUM_LOOKED_AT] for value in _values_of(row))
    package = sys.modules.get("datasets")
    return package is not None and type(dataset) is package.Dataset and _is_table(dataset)


def holds_lists(dataset: Any) -> bool:
    """Whether some rows are the same objects each time that they are read; a table makes them anew."""
    return any(isinstance(part, (list, tuple)) for part in _parts_of(dataset))


def copy_rows(value: Any) -> Any:
    """Rows of a list with copies of what a collator may change; raises NotPlain where that runs code."""
    kind = type(value)
    if kind is dict:
        return {name: copy_rows(entry) for name, entry in value.items()}
    if kind in (list, tuple, set, frozenset):
        return kind(map(copy_rows, value))
    if kind is torch.Tensor and value.layout == torch.strided and not value.requires_grad:
        return value.clone()  # a deep copy would take all of the tensor that this one is a part of
    if kind is np.ndarray and not value.dtype.hasobject:
        return value.copy()
    root = kind.__module__.partition(".")[0]
    if isinstance(value, UserDict) and root == "transformers":  # what a tokenizer returns
        copied = copy.copy(value)
        copied.data = copy_rows(value.data)
        return copied
    if value is None or isinstance(value, np.generic) or kind in _CONSTANT or root in _CONSTANT_IN:
        return value
    if root == "PIL":
        return value.copy()
    raise NotPlain(f"a row holds a {kind.__name__}")


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
    if not all(map(_is_table, _parts_of(dataset))):
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


def _parts_of(dataset: Any) -> list[Any]:
    """The datasets that hold the rows of one that is put together of others."""
    if isinstance(dataset, Subset):
        return _parts_of(dataset.dataset)
    if isinstance(dataset, ConcatDataset):
        return [part for whole in dataset.datasets for part in _parts_of(whole)]
    return [dataset]


def _values_of(row: Any) -> Sequence[Any]:
    """A row, and its entries if it has names for them."""
    return (row, *row.values()) if type(row) is dict else (row,)


def _is_known(value: Any) -> bool:
    """Whether a row, or an entry of one, is measured without code of the user's."""
    measured = (Mapping, torch.Tensor, np.ndarray, list, tuple, str, bytes)
    root = type(value).__module__.partition(".")[0]
    return not isinstance(value, measured) or root in ("builtins", "torch", "numpy", "transformers")


def _is_table(dataset: Any) -> bool:
    """Whether a dataset is an Arrow table without a transform on access."""
    kind = (getattr(dataset, "format", None) or {}).get("type") if hasattr(dataset, "data") else "custom"
    return kind != "custom" and hasattr(dataset, "column_names")


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
