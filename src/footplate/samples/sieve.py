"""What is kept of many rows: the loss of each, and the few rows with the largest losses."""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np


class Kept(NamedTuple):
    """A row that is among the hardest so far; ordered, the least hard comes first."""

    rank: float  # the loss; infinite for one that is not finite
    earliness: int  # of equal losses the first row counts as the hardest
    loss: float
    number: int
    content: Any


class Sieve:
    """Takes the losses of rows batch by batch, and holds on to the hardest rows.

    Args:
        count: How many rows to keep.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._numbers, self._losses = array("q"), array("d")  # 16 bytes a row
        self._heap: list[Kept] = []

    def __len__(self) -> int:
        return len(self._losses)

    def add(self, numbers: Sequence[int], losses: Sequence[float], take: Callable[[int], Any]) -> None:
        """Add the rows of a batch.

        Args:
            numbers: Of the rows in the dataset.
            losses: As many.
            take: Gives the content of a row by its place in the batch; asked only for rows that are kept.
        """
        self._numbers.extend(numbers)
        self._losses.extend(losses)
        for place, (number, loss) in enumerate(zip(numbers, losses, strict=True)):
            mark = (rank_of(loss), -number)
            is_full = len(self._heap) >= self._count
            if is_full and mark <= self._heap[0][:2]:
                continue
            kept = Kept(*mark, loss, number, take(place))
            if is_full:
                heapq.heapreplace(self._heap, kept)
            else:
                heapq.heappush(self._heap, kept)

    @property
    def hardest(self) -> list[Kept]:
        """The rows that were kept, the hardest first."""
        return sorted(self._heap, key=lambda kept: kept[:2], reverse=True)

    @property
    def numbers(self) -> np.ndarray[Any, Any]:
        """The numbers of all rows, in the order in which they came."""
        return np.array(self._numbers, dtype=np.int64)

    @property
    def losses(self) -> np.ndarray[Any, Any]:
        """The losses of all rows, in the same order."""
        return np.array(self._losses, dtype=np.float64)


def rank_of(loss: float) -> float:
    """By what rows are ordered: a loss that is not finite comes before all others."""
    return loss if math.isfinite(loss) else math.inf
