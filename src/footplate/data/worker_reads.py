"""How workers read: each batch on generators seeded by its position, so that any number of workers agrees."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from footplate.data.collators.default import check_no_missing
from footplate.data.generators import HeldGenerators

Collate = Callable[[list[Any]], Any]

_LOW_64 = 2**64 - 1
_LOW_32 = 2**32 - 1


def mix_seed(seed: int, part: int) -> int:
    """A 64-bit seed that differs in about half its bits when either number changes by one."""
    mixed = (seed + (part + 1) * 0x9E3779B97F4A7C15) & _LOW_64
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _LOW_64
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _LOW_64
    return mixed ^ (mixed >> 31)


def seed_of(*parts: int) -> int:
    """One seed for a sequence of numbers."""
    seed = 0
    for part in parts:
        seed = mix_seed(seed, part)
    return seed


def seed_generators(seed: int) -> None:
    """Seed what data draws from: Python's, numpy's and torch's global generators on the CPU."""
    random.seed(seed)
    # torch and numpy run the same algorithm on 32 bits: from the same bits they would draw alike
    np.random.seed(seed >> 32)
    torch.default_generator.manual_seed(seed & _LOW_32)


def fetch_rows(dataset: Any, indices: Any) -> Any:
    """The samples of these indices, in one call if the dataset can."""
    fetch_many = getattr(dataset, "__getitems__", None)
    return fetch_many(indices) if fetch_many else [dataset[index] for index in indices]


def collate_rows(collate: Collate, rows: Any, indices: Any) -> Any:
    """A batch of these rows; where one is None and the collator fails, the error names its index."""
    try:
        return collate(rows)
    except Exception as error:
        if isinstance(rows, list):
            check_no_missing(rows, error, indices)
        raise


class SeededRows:
    """A dataset as workers read it: a request is the seed of a batch and its indices.

    The collator runs in the same process right after, on the generators as reading left them.

    Args:
        dataset: What is read.
        collate: What makes a batch of it; generators that either holds are seeded for each batch too.
    """

    def __init__(self, dataset: Any, collate: Collate | None = None) -> None:
        self.dataset, self.collate = dataset, collate
        self._indices: Any = ()  # of the batch under way
        self._held: HeldGenerators | None = None  # of the worker's own copies

    def __getitems__(self, request: tuple[int, Any]) -> Any:
        seed, self._indices = request
        if self._held is None:
            self._held = HeldGenerators(dataset=self.dataset, collate=self.collate)
        seed_generators(seed)
        self._held.seed(seed)
        return fetch_rows(self.dataset, self._indices)

    def collate_rows(self, rows: Any) -> Any:
        """The batch of the rows that were read last."""
        assert self.collate is not None
        return collate_rows(self.collate, rows, self._indices)
