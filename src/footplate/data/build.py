"""Loaders as the arguments describe them."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler, Sampler

from footplate import rng
from footplate.data.loader import Loader, can_pin
from footplate.data.order import ReseededOrder
from footplate.data.worker_reads import Collate

if TYPE_CHECKING:
    from footplate.arguments.fields import TrainingArguments

logger = logging.getLogger(__name__)


def build_loader(
    dataset: Any,
    args: TrainingArguments,
    *,
    batch_size: int,
    collate: Collate,
    sampler: Sampler[Any] | Iterable[Any] | None = None,
    is_training: bool = False,
    device: torch.device | None = None,
    non_blocking: bool = False,
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
        seed=rng.data_seed(args),
        rank=args.process_index,
        shows_progress=not args.disable_tqdm,
        device=device,
        non_blocking=non_blocking,
        **settings,
    )


def seed_worker(worker_id: int, num_workers: int, rank: int) -> None:
    """Seed every generator of a worker from the seed that torch gave it, apart from those of other ranks."""
    rng.seed_all(torch.initial_seed() % 2**32 + num_workers * rank)


def _seeded(sampler: Any, args: TrainingArguments) -> Any:
    """The sampler, or for torch's `RandomSampler` the same draws from the seed of the arguments."""
    if type(sampler) is not RandomSampler:  # a subclass may draw in its own way
        return sampler
    return ReseededOrder(sampler, rng.data_seed(args))


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
