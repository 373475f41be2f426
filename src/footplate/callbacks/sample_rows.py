"""Which rows of a dataset are looked at, and reading no others."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import IterableDataset, Subset

from footplate.comm import find_batch_size


class NumberedBatch(NamedTuple):
    """A batch, and where in the dataset its rows are."""

    rows: list[int]
    batch: Any


def choose_rows(num_rows: int, count: int, seed: int) -> list[int]:
    """`count` different row numbers in rising order, the same for the same arguments."""
    return sorted(random.Random(seed).sample(range(num_rows), min(count, num_rows)))


def pick_rows(dataset: Any, count: int, seed: int) -> tuple[list[int], Any]:
    """Row numbers, and a dataset of those rows alone: seeded ones, or the first ones of a stream."""
    is_stream = isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")
    if is_stream:
        samples = list(islice(dataset, count))
        return list(range(len(samples))), samples
    rows = choose_rows(len(dataset), count, seed)
    has_columns = hasattr(dataset, "select") and hasattr(dataset, "column_names")
    return rows, (dataset.select(rows) if has_columns else Subset(dataset, rows))


def read_batches(loader: Any, rows: list[int], batch_size: int) -> list[NumberedBatch]:
    """The rows of a loader as batches, made in this process: no worker is started for so few."""
    dataset: Any = getattr(loader, "dataset", None)
    collate = getattr(loader, "collate_fn", None)
    chosen = getattr(loader, "chosen_rows", None)  # where evaluation itself takes fewer
    rows = rows if chosen is None else [rows[index] for index in chosen]
    if callable(collate) and hasattr(dataset, "__getitem__"):
        samples = [dataset[index] for index in range(min(len(rows), len(dataset)))]
        starts = range(0, len(samples), batch_size)
        batches = [collate(samples[start : start + batch_size]) for start in starts]
    else:  # some other iterable of batches, which an override returned
        batches = list(islice(loader, -(-len(rows) // batch_size)))
    sizes = [find_batch_size(batch) or 0 for batch in batches]
    ends = np.cumsum(sizes).tolist()
    return [
        NumberedBatch(rows[end - size : end], batch)
        for size, end, batch in zip(sizes, ends, batches, strict=True)
    ]


@contextmanager
def seeded_generators(seed: int) -> Iterator[None]:
    """Draw from `seed` inside; afterwards the generators go on as if nothing had been drawn."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            random.seed(seed)
            np.random.seed(seed % 2**32)  # numpy takes no more than 32 bits
            torch.manual_seed(seed)
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
