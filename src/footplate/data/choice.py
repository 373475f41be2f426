"""A fixed part of an evaluation set, drawn by a seed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import IterableDataset

from footplate.batch import has_length, select_rows


def choose_rows(num_rows: int, max_rows: int, seed: int) -> list[int]:
    """Row numbers in rising order, the same for the same arguments."""
    drawn = torch.randperm(num_rows, generator=torch.Generator().manual_seed(seed))
    return sorted(drawn[:max_rows].tolist())


def limit_rows(dataset: Any, max_rows: int | None, seed: int) -> tuple[Any, list[int] | None]:
    """The dataset or a fixed part of it, and the numbers of these rows; of a stream, the first rows."""
    if max_rows is None:
        return dataset, None
    if isinstance(dataset, IterableDataset):
        return FirstRows(dataset, max_rows), None
    if not has_length(dataset) or len(dataset) <= max_rows:
        return dataset, None
    rows = choose_rows(len(dataset), max_rows, seed)
    return select_rows(dataset, rows), rows


class FirstRows(IterableDataset[Any]):
    """The first rows of a stream.

    Args:
        stream: The whole stream.
        max_rows: How many rows to read of it.
    """

    def __init__(self, stream: Any, max_rows: int) -> None:
        self.stream = stream
        self.max_rows = max_rows

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self.stream), self.max_rows)
