"""The largest micro-batch that the training data can give, and what to say of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from footplate import comm
from footplate.batch import find_length
from footplate.data import columns
from footplate.data.loader import Loader
from footplate.data.longest import SECONDS, Longest, find_fullest, find_longest
from footplate.data.tokens import TokenBudgetOrder
from footplate.data.worker_reads import collate_rows, fetch_rows
from footplate.training import traits
from footplate.training.advice import BatchFacts

if TYPE_CHECKING:
    from footplate.trainer.training import Training


def read_largest(trainer: Training, loader: Any) -> tuple[Any, BatchFacts]:
    """The batch of the longest rows, or the first one where the data cannot be asked for certain rows."""
    found = choose_longest(trainer, loader)
    if found is None:
        batch = next(iter(loader), None)
        if batch is None:
            raise ValueError("the training data gave no batch: it is empty, or can be read only once")
    else:
        batch = collate_rows(loader.collate_fn, fetch_rows(loader.dataset, found.indices), found.indices)
    return batch, describe_batch(trainer, batch, found)


def choose_longest(trainer: Training, loader: Any, seconds: float = SECONDS) -> Longest | None:
    """Which rows make the largest batch; None if its rows are not for us to choose.

    Args:
        trainer: The Trainer.
        loader: Its loader.
        seconds: For how long to read rows, where only they can tell their length.
    """
    dataset = trainer.train_dataset
    is_ours = traits.is_ours(trainer.get_train_dataloader) and isinstance(loader, Loader)
    total = find_length(dataset)
    if not is_ours or not total or loader.reads_stream or not hasattr(loader.dataset, "__getitem__"):
        return None
    if find_length(loader.dataset) != total:
        return None
    if isinstance(loader.order, TokenBudgetOrder):
        lengths = loader.order.lengths
        rows = find_fullest(lengths, loader.order.rounds(0))
        return Longest(rows, int(lengths.max()), total, total)
    if loader.batch_size is None:  # a BatchSampler of the user's own cuts batches
        return None
    column = trainer.args.length_column_name
    return find_longest(dataset, loader.batch_size, column, input_names(trainer), seconds)


def input_names(trainer: Training) -> list[str]:
    """What forward takes, the main input first. It sets nothing on the trainer, and asks no override."""
    taken = trainer._signature_columns or columns.signature_columns(trainer.model, trainer.label_names)
    main = traits.main_input_name(trainer.model)
    return [main, *(name for name in taken if name != main)]


def describe_batch(trainer: Training, batch: Any, found: Longest | None) -> BatchFacts:
    """What to say of a batch, and of the rows that were found for it."""
    main = traits.main_input_name(trainer.model)
    tensor = batch.get(main) if isinstance(batch, Mapping) else None
    if tensor is None:
        values = (
            batch.values()
            if isinstance(batch, Mapping)
            else batch
            if isinstance(batch, (list, tuple))
            else ()
        )
        tensor = next((value for value in values if isinstance(value, torch.Tensor)), None)
    shape = tuple(getattr(tensor, "shape", ()))[1:]
    width = shape[0] if len(shape) == 1 and isinstance(batch, Mapping) and main in batch else None
    text = f"{width} tokens" if width is not None else " x ".join(map(str, shape))
    known = (False, 0, 0) if found is None else (True, found.num_measured, found.num_rows)
    return BatchFacts(comm.find_batch_size(batch) or 1, text, width, *known)
