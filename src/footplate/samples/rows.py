"""The choice of the rows that are shown; no other rows are read."""

from __future__ import annotations

import random
from itertools import islice
from typing import Any, NamedTuple

from torch.utils.data import IterableDataset

from footplate.batch import select_rows
from footplate.comm import find_batch_size


class NumberedBatch(NamedTuple):
    """A batch, and the indices of its rows in the dataset."""

    rows: list[int]
    batch: Any


def choose_rows(num_rows: int, count: int, seed: int) -> list[int]:
    """`count` different row numbers in rising order, the same for the same arguments."""
    # sampling a range builds no list, so a dataset of any size costs the same
    return sorted(random.Random(seed).sample(range(num_rows), min(count, num_rows)))


def pick_rows(dataset: Any, count: int, seed: int) -> tuple[list[int], Any]:
    """Row numbers and a dataset of only these rows: chosen by the seed or, in a stream, the first ones."""
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        samples = list(islice(dataset, count))
        return list(range(len(samples))), samples
    rows = choose_rows(len(dataset), count, seed)
    return rows, select_rows(dataset, rows)


def read_batches(loader: Any, rows: list[int], batch_size: int) -> list[NumberedBatch]:
    """The rows of a loader as batches, read in this process: for few rows, starting workers takes longer."""
    dataset: Any = getattr(loader, "dataset", None)
    collate = getattr(loader, "collate_fn", None)
    chosen = getattr(loader, "chosen_rows", None)  # set if evaluation itself takes fewer rows
    rows = rows if chosen is None else [rows[index] for index in chosen]
    if callable(collate) and hasattr(dataset, "__getitem__"):
        samples = [dataset[index] for index in range(min(len(rows), len(dataset)))]
        starts = range(0, len(samples), batch_size)
        batches = [collate(samples[start : start + batch_size]) for start in starts]
    else:  # an override of get_eval_dataloader may return any iterable of batches
        batches = list(islice(loader, -(-len(rows) // batch_size)))
    numbers = iter(rows)
    return [NumberedBatch(list(islice(numbers, find_batch_size(batch) or 0)), batch) for batch in batches]
