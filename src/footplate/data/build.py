"""Loaders as the arguments describe them."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler, Sampler

from footplate import rng
from footplate.batch import has_length
from footplate.data.loader import Loader, can_pin, micro_batch_size
from footplate.data.order import ReseededOrder
from footplate.data.samplers import IterableDatasetShard
from footplate.data.shares import ALONE, DIVIDE, FILL, KEEP, Ranks
from footplate.data.stream_watch import is_from_datasets
from footplate.data.tokens import TokenBatches, TokenBudgetOrder
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
    fills_rounds: bool = True,
) -> Loader:
    """The loader that the arguments describe; `sampler` may be a `BatchSampler`, and streams take none.

    Args:
        dataset: What to read.
        args: The settings.
        batch_size: Rows of a batch of this process.
        collate: Makes a batch of rows.
        sampler: The order of the rows.
        is_training: Whether epochs are counted.
        device: Where batches go.
        non_blocking: Do not wait for that.
        fills_rounds: In an evaluation by several processes, give each as many rows by repeating some, for
            code that joins the results of all processes batch by batch.
    """
    ranks, is_shard = plan_ranks(args, sampler, is_training, fills_rounds), False
    batch_size = micro_batch_size(args, batch_size)
    settings: dict[str, Any] = {
        "collate_fn": collate,
        "num_workers": args.dataloader_num_workers,
        "pin_memory": args.dataloader_pin_memory and can_pin(),
        **_worker_settings(args),
    }
    is_stream = isinstance(dataset, IterableDataset)
    if is_training:
        check_has_lengths(dataset, sampler, args)
    if is_stream and is_training and ranks.count > 1 and args.accelerator_config.dispatch_batches is False:
        dataset, is_shard = shard_stream(dataset, ranks, batch_size, args.dataloader_drop_last), True
        ranks = ALONE
    if isinstance(sampler, TokenBudgetOrder):
        sampler = TokenBatches(sampler)
    if isinstance(sampler, (BatchSampler, TokenBatches)) and not is_stream:
        settings["batch_sampler"] = sampler
    else:
        settings.update(batch_size=batch_size, drop_last=args.dataloader_drop_last)
        settings["sampler"] = None if is_stream else _seeded(sampler, args)
    loader = Loader(
        dataset,
        is_training=is_training,
        seed=rng.data_seed(args),
        rank=args.process_index if is_shard else 0,
        ranks=ranks,
        shows_progress=not args.disable_tqdm,
        device=device,
        non_blocking=non_blocking,
        prefetch=args.dataloader_prefetch_to_device,
        **settings,
    )
    loader.may_end_early = is_shard
    return loader


def plan_ranks(args: TrainingArguments, sampler: Any, is_training: bool, fills_rounds: bool) -> Ranks:
    """How several processes share out what they read, by the settings."""
    count = args.world_size
    if count == 1 or getattr(sampler, "num_replicas", 1) == count:  # that sampler shares out by itself
        return ALONE
    if args.accelerator_config.dispatch_batches:
        raise ValueError(
            "accelerator_config has dispatch_batches=True: footplate lets every process read its own rows, "
            "and sends none from the first process to the others. Leave it unset: the rows are the same."
        )
    if is_training:
        ending = FILL if args.accelerator_config.even_batches else DIVIDE
    else:
        ending = FILL if fills_rounds else KEEP
    return Ranks(args.process_index, count, ending)


def check_has_lengths(dataset: Any, sampler: Any, args: TrainingArguments) -> None:
    """Batches by tokens are planned for a whole epoch: they need rows with an index and a length."""
    if args.per_device_train_tokens is None or (sampler is not None and has_length(dataset)):
        return
    kind = "a stream" if isinstance(dataset, IterableDataset) else "without a length"
    raise ValueError(
        f"per_device_train_tokens={args.per_device_train_tokens} was given, and the training data, a "
        f"{type(dataset).__name__}, is {kind}: the batches of an epoch can only be planned for rows with an "
        "index and a number of them. Pass a dataset with __len__ and __getitem__, or set "
        "per_device_train_batch_size and leave per_device_train_tokens unset."
    )


def shard_stream(dataset: Any, ranks: Ranks, batch_size: int, drop_last: bool) -> Any:
    """The part of a stream that one process reads, without reading the others' if the stream can do that."""
    if is_from_datasets(dataset) and dataset.num_shards >= ranks.count:
        return dataset.shard(num_shards=ranks.count, index=ranks.rank)
    if not is_from_datasets(dataset) and callable(getattr(dataset, "shard", None)):
        return dataset.shard(ranks.count, ranks.rank)
    return IterableDatasetShard(dataset, batch_size, drop_last, ranks.count, ranks.rank)


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
