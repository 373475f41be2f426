"""A fixed part of a dataset, drawn by a seed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import IterableDataset, Subset

from footplate.data.loader import has_length


def choose_rows(num_rows: int, max_rows: int, seed: int) -> list[int]:
    """Which rows stand for all of them: the same ones for the same arguments, in their order."""
    drawn = torch.randperm(num_rows, generator=torch.Generator().manual_seed(seed))
    return sorted(drawn[:max_rows].tolist())


def limit_rows(dataset: Any, max_rows: int | None, seed: int) -> tuple[Any, list[int] | None]:
    """The dataset, or a fixed part of it, and which rows that is; of a stream, the first ones."""
    if max_rows is None:
        return dataset, None
    if isinstance(dataset, IterableDataset):
        return FirstRows(dataset, max_rows), None
    if not has_length(dataset) or len(dataset) <= max_rows:
        return dataset, None
    rows = choose_rows(len(dataset), max_rows, seed)
    is_table = hasattr(dataset, "select") and hasattr(dataset, "column_names")
    return dataset.select(rows) if is_table else Subset(dataset, rows), rows


class FirstRows(IterableDataset[Any]):
    """A stream that ends early.

    Args:
        stream: Where the samples come from.
        max_rows: How many of them to give.
    """

    def __init__(self, stream: Any, max_rows: int) -> None:
        self.stream = stream
        self.max_rows = max_rows

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self.stream), self.max_rows)
