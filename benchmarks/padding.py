"""How much of each batch is padding, for random order and for the two length-grouped ones."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import torch

TEXT_COLUMNS = ("text", "sentence", "document")
NUM_EPOCHS = 5
Order = Callable[[list[int], int, int], list[int]]


def random_order(lengths: list[int], batch_size: int, epoch: int) -> list[int]:
    """A plain shuffle."""
    indices: list[int] = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(epoch)).tolist()
    return indices


def transformers_order(lengths: list[int], batch_size: int, epoch: int) -> list[int]:
    """The order of `train_sampling_strategy="group_by_length"` in transformers."""
    from transformers.trainer_pt_utils import LengthGroupedSampler

    generator = torch.Generator().manual_seed(epoch)
    return list(LengthGroupedSampler(batch_size, lengths=lengths, generator=generator))


def footplate_order(lengths: list[int], batch_size: int, epoch: int) -> list[int]:
    """The order of the same setting in footplate."""
    from footplate.data.order import LengthGroupedOrder

    return [int(index) for index in LengthGroupedOrder(lengths, batch_size, seed=0).indices(epoch)]


def sorted_order(lengths: list[int], batch_size: int, epoch: int) -> list[int]:
    """Sorted by length, the longest rows in the short last batch: a floor, with no randomness at all."""
    return sorted(range(len(lengths)), key=lambda index: lengths[index])


ORDERS: dict[str, Order] = {
    "random": random_order,
    "transformers": transformers_order,
    "footplate": footplate_order,
    "fully sorted": sorted_order,
}


def cut(indices: Sequence[int], batch_size: int) -> list[Sequence[int]]:
    """Consecutive batches, the last one possibly short."""
    return [indices[start : start + batch_size] for start in range(0, len(indices), batch_size)]


def padding_share(lengths: list[int], batches: list[Sequence[int]]) -> float:
    """The share of positions that hold padding when each batch is padded to its longest row."""
    padded = sum(len(batch) * max(lengths[index] for index in batch) for batch in batches)
    return 1 - sum(lengths) / padded


def shared_mates(batches: list[Sequence[int]], others: list[Sequence[int]]) -> float:
    """The share of pairs in one batch that are together again in `others`: 1 means nothing was shuffled."""
    place = {index: number for number, batch in enumerate(others) for index in batch}
    pairs = [
        place[one] == place[other]
        for batch in batches
        for position, one in enumerate(batch)
        for other in batch[position + 1 :]
    ]
    return mean(pairs) if pairs else 0.0


def measure_order(order: Order, lengths: list[int], batch_size: int) -> dict[str, Any]:
    """Padding and repeated company over several epochs, or the error; an order must hold every row once."""
    try:
        orders = [order(lengths, batch_size, epoch) for epoch in range(NUM_EPOCHS)]
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    if any(sorted(indices) != list(range(len(lengths))) for indices in orders):
        return {"error": "not every row exactly once"}
    batched = [cut(indices, batch_size) for indices in orders]
    return {
        "padding": mean(padding_share(lengths, batches) for batches in batched),
        "shared_mates": mean(shared_mates(*pair) for pair in pairwise(batched)),
    }


def log_normal_lengths(num_rows: int) -> list[int]:
    """Long-tailed lengths with a median of about 55, as crawled text has them."""
    # evenly spaced quantiles, not draws: one lucky giant would decide the share in a small set
    quantiles = (torch.arange(num_rows, dtype=torch.float64) + 0.5) / num_rows
    lengths: list[int] = (4 + torch.special.ndtri(quantiles)).exp().clamp(4, 2048).long().tolist()
    return lengths


def read_lengths(path: Path, limit: int = 10_000) -> list[int]:
    """Words and punctuation marks per row of a CSV file's text column."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        column = next((name for name in TEXT_COLUMNS if name in (rows.fieldnames or [])), None)
        if column is None:
            raise ValueError(
                f"{path} has the columns {rows.fieldnames}; one of {TEXT_COLUMNS} must be there."
            )
        texts = [row[column] or "" for row, _ in zip(rows, range(limit), strict=False)]
    return [max(1, len(re.findall(r"\w+|[^\w\s]", text))) for text in texts]


def find_texts(folder: Path | None) -> dict[str, list[int]]:
    """The lengths to order: made up in three sizes, then those of each `*/train.csv` in the folder."""
    sources = {f"log-normal, {size:,} rows": log_normal_lengths(size) for size in (200, 1_000, 10_000)}
    for path in sorted(folder.glob("*/train.csv")) if folder else []:
        lengths = read_lengths(path)
        sources[f"{path.parent.name}, {len(lengths):,} rows"] = lengths
    return sources


def measure_padding(folder: Path | None, batch_sizes: Sequence[int] = (8, 16, 32)) -> list[dict[str, Any]]:
    """One record per text source and batch size, with what each order makes of it."""
    return [
        {"source": source, "batch_size": batch_size}
        | {name: measure_order(order, lengths, batch_size) for name, order in ORDERS.items()}
        for source, lengths in find_texts(folder).items()
        for batch_size in batch_sizes
    ]
