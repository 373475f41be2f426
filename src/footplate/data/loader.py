"""`Loader`: torch's `DataLoader` that starts anywhere, and is quicker without workers."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, IterDataPipe, MapDataPipe

from footplate.batch import find_length
from footplate.data.foreign_pass import ForeignPass
from footplate.data.order import SampleOrder, SequentialOrder
from footplate.data.read_ahead import InTurn, ReadAhead
from footplate.data.row_pass import Requests, RowPass, find_order
from footplate.data.samplers import IterableDatasetShard
from footplate.data.shares import ALONE, Ranks, Turn, count_rounds
from footplate.data.stream_pass import StreamPass, load_end
from footplate.data.stream_reader import StreamSettings
from footplate.data.to_device import Moved, Prefetched, can_prefetch
from footplate.data.turns import Announced
from footplate.data.worker_reads import SeededRows, collate_rows, fetch_rows, seed_of

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments


class Loader(DataLoader[Any]):
    """torch's `DataLoader` that starts anywhere, in the order of `accelerate`'s loader.

    Read in this process, data draws from the process's own random generators, one batch ahead. Workers seed
    theirs by epoch and position, so that any number of them delivers the same. Starting a pass draws one
    number from torch's generator, as torch's loader does.

    Args:
        is_training: Move to the next epoch after a whole pass, and tell samplers and dataset.
        seed: What random reads of workers depend on, besides epoch and position.
        rank: Which of several processes this is, if their data differ: their workers draw other numbers.
        ranks: Which of several processes this is, if they share out the same data in rounds of batches.
        shows_progress: Show a bar where samples must be read again to find a position.
        device: Where batches are moved to when they are handed out.
        non_blocking: Do not wait for that.
        prefetch: Copy each batch there while the one before it is used; None for yes, unless it is the CPU.
        kwargs: What `DataLoader` takes.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        is_training: bool = False,
        seed: int = 0,
        rank: int = 0,
        ranks: Ranks = ALONE,
        shows_progress: bool = True,
        device: torch.device | None = None,
        non_blocking: bool = False,
        prefetch: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(dataset, **kwargs)
        self.device, self.non_blocking = device, non_blocking
        self.prefetches = can_prefetch(device, prefetch)
        self.is_training, self.ranks = is_training, ranks
        self.iteration = 0
        self.may_end_early = False  # a part of a stream, which may have fewer batches than other processes
        self.gradient_state: Any = None  # Accelerate's, which is told when a pass begins and ends
        self.end_of_dataloader, self.remainder = False, -1  # what it asks for then
        self.seed = seed_of(seed, rank)
        self.shows_progress = shows_progress
        self.keeps_unused = False  # set by who calls `settle` after every update
        self._start: dict[str, Any] | None = None  # where the next pass is to go on
        self._pass: RowPass | StreamPass | ForeignPass | None = None
        self._pass_epoch = 0
        self._kept_workers: Any = None
        self._held_by_workers: list[Any] = []  # the generators in workers of the last pass over a stream
        self.is_resumed = False  # an earlier process has drawn what starting persistent workers draws
        # where the dataset is a part of another: that one, and which rows of it
        self.whole_dataset = dataset
        self.chosen_rows: list[int] | None = None

    @property
    def order(self) -> SampleOrder | None:
        """The order that this loader cuts into batches, if it is one that can be sought in."""
        return find_order(self.batch_sampler)

    def __len__(self) -> int:
        drop_last = bool(getattr(self.batch_sampler, "drop_last", self.drop_last))
        return count_rounds(super().__len__(), self.ranks, drop_last)

    def given_indices(self) -> range | list[int] | None:
        """The rows that an evaluation was given so far, in their order; None where they have no index."""
        rows = self._pass
        if not isinstance(rows, RowPass) or self.is_training or not self.in_order:
            return None
        is_whole = self._is_sequential and self.ranks.count == 1
        return range(rows.num_samples_given) if is_whole else rows.given_indices()

    @property
    def last_turn(self) -> Turn | None:
        """How the batch that was handed out last is shared with other processes; None if nobody knows."""
        return getattr(self._pass, "last_turn", None)

    def given_weights(self) -> list[float]:
        """Of each batch since the last `settle`: what its loss is multiplied by; empty for 1 each."""
        return self._pass.given_weights() if isinstance(self._pass, (RowPass, StreamPass)) else []

    def rows_under_way(self) -> list[list[Any]] | None:
        """The rows of each batch since the last `settle`; None for a stream, whose samples have no number."""
        return self._pass.rows_under_way() if isinstance(self._pass, RowPass) and self.in_order else None

    @property
    def samples_done(self) -> int:
        """Samples of the epoch that finished updates have used, over all processes."""
        return self._pass.samples_used if isinstance(self._pass, (RowPass, StreamPass)) else 0

    @property
    def _is_sequential(self) -> bool:
        return isinstance(self.order, SequentialOrder)

    def state_dict(self) -> dict[str, Any]:
        """Where the pass is after the last batch used: plain values, and the dataset's own state.

        A batch counts as used when it is handed out or, with `keeps_unused`, at the next `settle`.
        """
        if self._pass is None:
            return self._start or {"epoch": self.iteration, "num_samples": 0, "num_batches": 0}
        return {**self._pass.state(), "epoch": self._pass_epoch}

    def settle(self) -> None:
        """An update was made of all batches that were handed out."""
        if self._pass is not None:
            self._pass.settle()

    def rewind(self) -> None:
        """Let `state_dict` leave out what was read since the last `settle`; this pass cannot go on then."""
        if self._pass is not None:
            self._pass.rewind()

    @property
    def reads_stream(self) -> bool:
        """Whether the samples come as a stream, without an index."""
        return isinstance(self.dataset, IterableDataset)

    @property
    def reads_stream_here(self) -> bool:
        """Whether the samples of a stream are read in this process, where they cannot be read twice."""
        return self.reads_stream and self.num_workers == 0

    @property
    def total_batch_size(self) -> int | None:
        """Samples in a batch of all processes together."""
        sampler: Any = self.sampler if isinstance(self.sampler, BatchSampler) else self.batch_sampler
        size: int | None = getattr(sampler, "batch_size", self.batch_size)
        return None if size is None else size * self.ranks.count

    @property
    def total_dataset_length(self) -> int:
        """Samples in the dataset, whatever part of it this process reads."""
        length: int | None = getattr(self.dataset, "total_length", None)
        return len(self.dataset) if length is None else length  # type: ignore[arg-type]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next pass go on where `state` was taken; batch size and workers may have changed since.

        A pass of another epoch, if `set_epoch` asks for one, starts at its beginning.
        """
        self._start, self._pass = dict(state), None
        self.is_resumed = True
        self.set_epoch(state["epoch"])

    def seek(self, position: int, num_batches: int | None = None) -> None:
        """Start the next pass at `position`, counted in samples; of rows, nothing before it is read.

        Args:
            position: How many samples of the epoch to pass over.
            num_batches: How many batches these were, if not full ones of this loader's size.
        """
        if self.order is not None:
            self.order.check_position(position)
        if num_batches is None:
            num_batches = -(-position // ((self.batch_size or 1) * self.ranks.count))
        self._start = {"epoch": self.iteration, "num_samples": position, "num_batches": num_batches}

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
        if isinstance(self._pass, StreamPass):
            self._held_by_workers = [share.held for share in self._pass.shares]
        start = self._start_of(self.iteration)
        if start is None and self._start is not None:
            self._catch_up(self._start)
        self._start = None
        self._pass_epoch = self.iteration
        batches = self._begin(start)
        is_moved = self.device is None or self.device.type == "cpu"
        if self.device is not None and self.prefetches and isinstance(batches, (ReadAhead, InTurn)):
            # from memory that is not pinned, torch has read the batch when the call returns
            batches, is_moved = Prefetched(batches, self.device, self.non_blocking or self._pins()), True
        if self.gradient_state is not None:
            batches = Announced(batches, self)
        if self.device is not None and not is_moved:
            batches = Moved(batches, self.device, self.non_blocking)
        return self._pass_over(batches) if self.is_training else batches

    def _pass_over(self, batches: Iterator[Any]) -> Iterator[Any]:
        """One training pass; only a whole one moves the epoch."""
        yield from batches
        self.iteration = self._pass_epoch + 1

    def _catch_up(self, state: dict[str, Any]) -> None:
        """Leave dataset and sampler as the epoch of `state` left them: they may carry something over."""
        if self.reads_stream:
            load_end(self.dataset, state)
            self._held_by_workers = [share.get("held") for share in state.get("shares", ())]
        elif self._is_ours() and self.order is None:
            RowPass(self.batch_sampler, state, data=self._data(), ranks=self.ranks)

    def _start_of(self, epoch: int) -> dict[str, Any] | None:
        """Where the next pass is to go on, if it is one of this epoch."""
        return self._start if self._start is not None and self._start["epoch"] == epoch else None

    def _begin(self, start: dict[str, Any] | None) -> Iterator[Any]:
        """The batches of a pass, and in `_pass` who counts them."""
        if not self._is_ours():
            self._pass = foreign = ForeignPass(self.batch_size or 1, start, self.keeps_unused)
            return foreign.take(super().__iter__(), self.shows_progress)
        base_seed = self._draw_base_seed()
        if not self.reads_stream:
            is_whole = self._is_sequential and self.ranks.count == 1
            remembers = not self.is_training and not is_whole
            self._pass = rows = RowPass(
                self.batch_sampler, start, self.keeps_unused, remembers, self._data(), self.ranks
            )
            if self.num_workers > 0:
                return self._take_rows(rows, base_seed)
            return rows.read_here(self._read)
        settings = self._stream_settings()
        self._pass = stream = StreamPass(settings, self.num_workers, start, self.keeps_unused)
        if stream.num_workers == 0:
            return stream.read_here()
        return self._take_stream(stream, base_seed, is_kept=start is None)

    def _read(self, indices: Any) -> Any:
        """The batch of these indices, read in this process."""
        batch = collate_rows(self.collate_fn, fetch_rows(self.dataset, indices), indices)
        return pin(batch) if self._pins() else batch

    def _take_rows(self, rows: RowPass, base_seed: int) -> Iterator[Any]:
        """Batches that workers read, which start at once."""
        workers = self._kept_workers
        if workers is None:
            rows_of = SeededRows(self.dataset, self.collate_fn)
            parts = {"dataset": rows_of, "collate_fn": rows_of.collate_rows, "batch_sampler": Requests()}
            workers = self._build_workers(base_seed, self.num_workers, True, **parts)
        workers.batch_sampler.current = rows.requests(seed_of(self.seed, self.iteration))
        # the lists of a sampler of the user's own may be drawn between the draws of the model
        return rows.count(iter(workers), is_ahead=self.prefetches and self.order is not None)

    def _take_stream(self, stream: StreamPass, base_seed: int, is_kept: bool) -> Iterator[Any]:
        """Batches of a stream that workers read; those of a resumed pass serve no other."""
        workers = self._kept_workers if is_kept else None
        if self.persistent_workers:
            stream.go_on_with(self._held_by_workers)
        if workers is None:
            parts = {"dataset": stream.for_workers(), "batch_size": None, "collate_fn": as_it_is}
            workers = self._build_workers(base_seed, stream.num_workers, is_kept, **parts)
        workers.dataset.epoch.fill_(self.iteration)
        return stream.take(iter(workers), is_ahead=self.prefetches)

    def _build_workers(self, base_seed: int, num_workers: int, is_kept: bool, **parts: Any) -> Any:
        """torch's loader with the settings of this one, kept from pass to pass where they say so."""
        is_kept = is_kept and self.persistent_workers
        workers = DataLoader(
            num_workers=num_workers,
            pin_memory=self.pin_memory,
            timeout=self.timeout,
            worker_init_fn=self.worker_init_fn,
            multiprocessing_context=self.multiprocessing_context,
            generator=torch.Generator().manual_seed(base_seed),
            prefetch_factor=self.prefetch_factor,
            persistent_workers=is_kept,
            in_order=self.in_order,
            **parts,
        )
        self._kept_workers = workers if is_kept else None
        return workers

    def _draw_base_seed(self) -> int:
        """Advance the random state as torch does for new workers, or dropout would differ from then on."""
        if self.persistent_workers and (self._kept_workers is not None or self.is_resumed):
            return 0
        return int(torch.empty((), dtype=torch.int64).random_(generator=self.generator))

    def _stream_settings(self) -> StreamSettings:
        return StreamSettings(
            dataset=self.dataset,
            batch_size=self.batch_size or 1,
            drop_last=self.drop_last,
            collate=self.collate_fn,
            seed=self.seed,
            is_training=self.is_training,
            shows_progress=self.shows_progress,
            finish=pin if self._pins() else None,
            ranks=self.ranks,
        )

    def _is_ours(self) -> bool:
        """Whether batches need nothing but indices or samples, a dataset and a collator."""
        is_pipe = isinstance(self.dataset, (IterDataPipe, MapDataPipe))
        return self.batch_sampler is not None and not is_pipe and not (self.timeout and not self.num_workers)

    def _data(self) -> dict[str, Any]:
        """What is read and what makes batches of it."""
        return {"dataset": self.dataset, "collate_fn": self.collate_fn}

    def _pins(self) -> bool:
        return self.pin_memory and can_pin()


def given_rows(loader: Any) -> np.ndarray[Any, Any] | None:
    """Which rows of the whole dataset an evaluation was given, in their order; None where that is unknown."""
    indices = loader.given_indices() if isinstance(loader, Loader) else None
    if indices is None:
        return None
    rows = np.asarray(indices, dtype=np.int64)
    return rows if loader.chosen_rows is None else np.asarray(loader.chosen_rows, dtype=np.int64)[rows]


def num_drawn(loader: Any) -> int | None:
    """How many samples a pass over a loader draws, by its sampler; None if nobody says."""
    if not isinstance(loader, Loader) or loader.reads_stream:
        return None
    return find_length(getattr(loader.batch_sampler, "sampler", None))


def micro_batch_size(args: TrainingArguments, batch_size: int) -> int:
    """The rows that one process gets, where `batch_size` may be that of all together."""
    num_ranks = args.world_size
    if num_ranks == 1 or not args.accelerator_config.split_batches:
        return batch_size
    if batch_size % num_ranks:
        raise ValueError(
            f"accelerator_config has split_batches=True, and a batch of {batch_size} rows cannot be split "
            f"among {num_ranks} processes. Make the batch size a multiple of {num_ranks}."
        )
    return batch_size // num_ranks


def num_examples(loader: Any, fallback_batch_size: int) -> int:
    """How many samples a loader holds, or batches times `fallback_batch_size` if its dataset cannot say."""
    try:
        dataset = loader.dataset
        return len(dataset.dataset if isinstance(dataset, IterableDatasetShard) else dataset)
    except (NameError, AttributeError, TypeError):
        return len(loader) * fallback_batch_size


def pin(batch: Any) -> Any:
    """The batch in memory that a device reads directly."""
    from torch.utils.data._utils import pin_memory

    return pin_memory.pin_memory(batch)  # type: ignore[no-untyped-call]


def as_it_is(batch: Any) -> Any:
    """Workers of a stream collate by themselves."""
    return batch


@functools.cache
def can_pin() -> bool:
    """Whether there is a device that reads pinned memory."""
    if torch.backends.mps.is_available():
        return False
    accelerator = getattr(torch, "accelerator", torch.cuda)  # torch before 2.6 has only the latter
    return bool(accelerator.is_available())
