"""A pass over batches that come in their own way."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from tqdm import tqdm


class ForeignPass:
    """A pass over batches that come in their own way: counted, and to go on, read and dropped.

    Args:
        batch_size: How many samples a batch counts as.
        start: The state of an earlier pass to go on from.
        keeps_unused: Whether batches count as used at `settle` only, not when they are handed out.
    """

    def __init__(
        self, batch_size: int, start: dict[str, Any] | None = None, keeps_unused: bool = False
    ) -> None:
        self.batch_size, self._keeps_unused = batch_size, keeps_unused
        self.num_batches: int = start["num_batches"] if start else 0
        self._num_used = self.num_batches

    def take(self, batches: Iterator[Any], shows_progress: bool) -> Iterator[Any]:
        """The batches after those seen."""
        read_past(batches, self.num_batches, shows_progress)
        for batch in batches:
            self.num_batches += 1
            if not self._keeps_unused:
                self.settle()
            yield batch

    def settle(self) -> None:
        """An update was made of all that was handed out."""
        self._num_used = self.num_batches

    def rewind(self) -> None:
        """There is nothing to forget: batches are read again."""

    def state(self) -> dict[str, Any]:
        """How far the pass got."""
        return {"num_samples": self._num_used * self.batch_size, "num_batches": self._num_used}


def read_past(batches: Iterator[Any], num_batches: int, shows_progress: bool = True) -> None:
    """Read and drop, with a bar that shows rate and time to go where it takes longer than a second."""
    seen = islice(batches, num_batches)
    for _ in tqdm(seen, "Reading past", num_batches, unit=" batches", delay=1, disable=not shows_progress):
        pass
