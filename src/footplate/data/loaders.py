"""Loaders as the arguments describe them, and what can be asked of any loader."""

from __future__ import annotations

import functools
import logging
import random
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler, Sampler

from footplate.data.loader import Loader, can_pin, has_length, read_past
from footplate.data.order import ReseededOrder
from footplate.data.reads import Collate
from footplate.data.samplers import IterableDatasetShard

if TYPE_CHECKING:
    from footplate.arguments.fields import TrainingArguments

__all__ = ["Loader", "build_loader", "given_rows", "has_length", "num_examples", "seed_worker", "start_at"]

logger = logging.getLogger(__name__)


def build_loader(
    dataset: Any,
    args: TrainingArguments,
    *,
    batch_size: int,
    collate: Collate,
    sampler: Sampler[Any] | Iterable[Any] | None = None,
    is_training: bool = False,
) -> Loader:
    """The loader that the arguments describe; `sampler` may be a `BatchSampler`, and streams take none."""
    settings: dict[str, Any] = {
        "collate_fn": collate,
        "num_workers": args.dataloader_num_workers,
        "pin_memory": args.dataloader_pin_memory and can_pin(),
        **_worker_settings(args),
    }
    is_stream = isinstance(dataset, IterableDataset)
    if isinstance(sampler, BatchSampler) and not is_stream:
        settings["batch_sampler"] = sampler
    else:
        settings.update(batch_size=batch_size, drop_last=args.dataloader_drop_last)
        settings["sampler"] = None if is_stream else _seeded(sampler, args)
    return Loader(
        dataset,
        is_training=is_training,
        seed=_data_seed(args),
        rank=args.process_index,
        shows_progress=not args.disable_tqdm,
        **settings,
    )


def start_at(
    loader: Any, num_samples: int, num_batches: int, state: dict[str, Any] | None = None
) -> Iterator[Any]:
    """A pass over any loader past what was seen: sought where that is possible, else read and dropped.

    Args:
        loader: A `Loader`, or anything that gives batches.
        num_samples: How many samples of the epoch were used.
        num_batches: How many batches of the epoch they were, cut as the loader cuts them now.
        state: What the `state_dict` of such a loader said then, if it has one.
    """
    if state is not None and hasattr(loader, "load_state_dict"):
        loader.load_state_dict(state)
        return iter(loader)
    if isinstance(loader, Loader):
        loader.seek(num_samples, num_batches)
        return iter(loader)
    logger.warning("%s cannot seek: reading and dropping %d batches.", type(loader).__name__, num_batches)
    batches: Iterator[Any] = iter(loader)
    read_past(batches, num_batches)
    return batches


def given_rows(loader: Any) -> np.ndarray[Any, Any] | None:
    """Which rows of the whole dataset an evaluation was given, in their order; None where that is unknown."""
    indices = loader.given_indices() if isinstance(loader, Loader) else None
    if indices is None:
        return None
    rows = np.asarray(indices, dtype=np.int64)
    return rows if loader.chosen_rows is None else np.asarray(loader.chosen_rows, dtype=np.int64)[rows]


def num_examples(loader: Any, fallback_batch_size: int) -> int:
    """How many samples a loader holds, or batches times `fallback_batch_size` if its dataset cannot say."""
    try:
        dataset = loader.dataset
        return len(dataset.dataset if isinstance(dataset, IterableDatasetShard) else dataset)
    except (NameError, AttributeError, TypeError):
        return len(loader) * fallback_batch_size


def seed_worker(worker_id: int, num_workers: int, rank: int) -> None:
    """Seed every generator of a worker from the seed that torch gave it, apart from those of other ranks."""
    seed = torch.initial_seed() % 2**32 + num_workers * rank
    random.seed(seed)
    np.random.seed(seed % 2**32)  # numpy takes no more than 32 bits
    torch.manual_seed(seed)


def _seeded(sampler: Any, args: TrainingArguments) -> Any:
    """The sampler, or for torch's `RandomSampler` the same draws from the seed of the arguments."""
    if type(sampler) is not RandomSampler:  # a subclass may draw in its own way
        return sampler
    return ReseededOrder(sampler, _data_seed(args))


def _data_seed(args: TrainingArguments) -> int:
    return args.seed if args.data_seed is None else args.data_seed


def _worker_settings(args: TrainingArguments) -> dict[str, Any]:
    """The settings that only mean something with workers; a notice names those that are set without any."""
    given: dict[str, Any] = {}
    if args.dataloader_persistent_workers:
        given["persistent_workers"] = True
    if args.dataloader_prefetch_factor is not None:
        given["prefetch_factor"] = args.dataloader_prefetch_factor
    if args.dataloader_multiprocessing_context is not None:
        given["multiprocessing_context"] = args.dataloader_multiprocessing_context
    if not args.dataloader_in_order:
        given["in_order"] = False
    if args.dataloader_num_workers > 0:
        return given
    if given:
        _warn_no_workers(", ".join(f"dataloader_{name}" for name in given))
    return {}


@functools.cache
def _warn_no_workers(names: str) -> None:
    """Said once per process for the same settings."""
    logger.warning(
        "%s: no effect with dataloader_num_workers=0. Ask for workers, or drop the setting.", names
    )
