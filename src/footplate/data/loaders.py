"""Loaders: torch's `DataLoader` from the arguments, with a shorter path where no workers are asked for."""

from __future__ import annotations

import functools
import logging
import random
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    IterDataPipe,
    MapDataPipe,
    RandomSampler,
    Sampler,
)

from footplate.data.order import ReseededOrder, SampleOrder
from footplate.data.samplers import IterableDatasetShard

if TYPE_CHECKING:
    from footplate.arguments.fields import TrainingArguments

logger = logging.getLogger(__name__)

Collate = Callable[[list[Any]], Any]


class Loader(DataLoader[Any]):
    """torch's `DataLoader` that knows its epoch, starts anywhere in it, and is quicker without workers.

    Args:
        is_training: Read one batch ahead where no worker does; move to the next epoch after a whole pass.
        kwargs: What `DataLoader` takes.
    """

    def __init__(self, dataset: Any, *, is_training: bool = False, **kwargs: Any) -> None:
        super().__init__(dataset, **kwargs)
        self.is_training = is_training
        self.iteration = 0

    @property
    def order(self) -> SampleOrder | None:
        """The order that this loader cuts into batches, if it is one that can be sought in."""
        if type(self.batch_sampler) is not BatchSampler:  # another class may arrange batches as it likes
            return None
        sampler = self.batch_sampler.sampler
        return sampler if isinstance(sampler, SampleOrder) else None

    def seek(self, position: int) -> None:
        """Start the next pass at `position`, counted in samples; nothing before it is read."""
        if self.order is None:
            sampler = type(getattr(self.batch_sampler, "sampler", self.sampler)).__name__
            raise ValueError(f"Only a SampleOrder can be sought in; this loader draws from {sampler}.")
        self.order.seek(position)

    def set_epoch(self, epoch: int) -> None:
        """Tell the samplers and the dataset, those that want to know, which epoch the next pass is."""
        self.iteration = epoch
        inner_sampler = getattr(self.batch_sampler, "sampler", self.sampler)
        parts: list[Any] = [self.batch_sampler, inner_sampler, self.dataset]
        for part in parts:
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        if self.is_training:
            self.set_epoch(self.iteration)
        batches = self._read_here() if self._is_plain() else super().__iter__()
        return self._pass_over(batches) if self.is_training else batches

    def _pass_over(self, batches: Iterator[Any]) -> Iterator[Any]:
        """One training pass; only a whole one moves the epoch."""
        yield from batches if self.num_workers else one_ahead(batches)
        self.iteration += 1

    def _is_plain(self) -> bool:
        """Whether batches come from this process and need nothing but reading and collating."""
        return (
            self.num_workers == 0
            and self.timeout == 0
            and not self.pin_memory
            and self.batch_sampler is not None
            and not isinstance(self.dataset, (IterDataPipe, MapDataPipe))
        )

    def _read_here(self) -> Iterator[Any]:
        """torch's order of events without its bookkeeping: the sampler, the base seed, then the data."""
        dataset: Any = self.dataset
        if isinstance(dataset, IterableDataset):
            self._draw_base_seed()
            return read_stream(iter(dataset), self.batch_size or 1, self.drop_last, self.collate_fn)
        index_batches = self._index_batches()
        self._draw_base_seed()
        return read_rows(dataset, index_batches, self.collate_fn)

    def _draw_base_seed(self) -> None:
        """Advance the random state as torch does for its workers, or dropout would differ from then on."""
        torch.empty((), dtype=torch.int64).random_(generator=self.generator)

    def _index_batches(self) -> Iterator[list[int]]:
        """The indices of each batch to come."""
        order, sampler = self.order, self.batch_sampler
        assert sampler is not None
        if order is None:
            return iter(sampler)
        assert isinstance(sampler, BatchSampler)
        return cut_batches(list(order), sampler.batch_size, sampler.drop_last)


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
        "pin_memory": args.dataloader_pin_memory and _can_pin(),
        **_worker_settings(args),
    }
    is_stream = isinstance(dataset, IterableDataset)
    if isinstance(sampler, BatchSampler) and not is_stream:
        settings["batch_sampler"] = sampler
    else:
        settings.update(batch_size=batch_size, drop_last=args.dataloader_drop_last)
        settings["sampler"] = None if is_stream else _seeded(sampler, args)
    if is_training and not is_stream:
        settings["worker_init_fn"] = functools.partial(
            seed_worker, num_workers=args.dataloader_num_workers, rank=args.process_index
        )
    return Loader(dataset, is_training=is_training, **settings)


def start_at(loader: Any, num_samples: int, num_batches: int) -> Iterator[Any]:
    """A pass over the loader past what was seen: sought where that is possible, else read and dropped."""
    if isinstance(loader, Loader) and loader.order is not None:
        loader.seek(num_samples)
        return iter(loader)
    logger.warning("%s cannot seek: reading and dropping %d batches.", type(loader).__name__, num_batches)
    return islice(loader, num_batches, None)


def has_length(dataset: Any) -> bool:
    """Whether `len(dataset)` gives an answer."""
    try:
        return len(dataset) is not None
    except (TypeError, AttributeError):  # some libraries raise the latter for a length they do not know yet
        return False


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


def cut_batches(indices: list[int], batch_size: int, drop_last: bool) -> Iterator[list[int]]:
    """`indices` in slices of `batch_size`, the last one perhaps shorter or dropped."""
    end = len(indices) // batch_size * batch_size if drop_last else len(indices)
    return (indices[start : start + batch_size] for start in range(0, end, batch_size))


def read_rows(dataset: Any, index_batches: Iterator[list[int]], collate: Collate) -> Iterator[Any]:
    """A batch for each list of indices, fetched in one call if the dataset can."""
    fetch_many = getattr(dataset, "__getitems__", None)
    if fetch_many:
        for indices in index_batches:
            yield collate(fetch_many(indices))
    else:
        for indices in index_batches:
            yield collate([dataset[index] for index in indices])


def read_stream(samples: Iterator[Any], batch_size: int, drop_last: bool, collate: Collate) -> Iterator[Any]:
    """Batches of `batch_size` successive samples until the stream ends."""
    while len(rows := list(islice(samples, batch_size))) == batch_size:
        yield collate(rows)
    if rows and not drop_last:
        yield collate(rows)


def one_ahead(batches: Iterator[Any]) -> Iterator[Any]:
    """The same batches, each handed out when the next is read already.

    A random collator and dropout draw from one stream of numbers: who draws first is part of the result.
    """
    for current in batches:
        for following in batches:
            yield current
            current = following
        yield current


def _seeded(sampler: Any, args: TrainingArguments) -> Any:
    """The sampler, or for torch's `RandomSampler` the same draws from the seed of the arguments."""
    if type(sampler) is not RandomSampler:  # a subclass may draw in its own way
        return sampler
    return ReseededOrder(sampler, args.seed if args.data_seed is None else args.data_seed)


def _can_pin() -> bool:
    """Whether there is a device that reads pinned memory."""
    if torch.backends.mps.is_available():
        return False
    accelerator = getattr(torch, "accelerator", torch.cuda)  # torch before 2.6 has only the latter
    return bool(accelerator.is_available())


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
