"""`Loader`: torch's `DataLoader` that reads with seeds, starts anywhere, and is quicker without workers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, IterDataPipe, MapDataPipe
from tqdm import tqdm

from footplate.data.order import SampleOrder, SequentialOrder
from footplate.data.reads import SeededReads, SeededRows, read_rows, seed_of
from footplate.data.rows import IndexBatches, Requests, count_left, find_order
from footplate.data.streams import StreamPass, StreamSettings, count_stream_left, load_end


class Loader(DataLoader[Any]):
    """torch's `DataLoader` whose batches depend on seed, epoch and position alone, and that starts anywhere.

    A batch is read and collated on generators that are seeded by its position, in whichever process: what is
    random in the data comes out the same with and without workers and after a resume, and training's own
    generators never notice. Starting a pass draws one number from torch's generator, as torch's loader does.

    Args:
        is_training: Move to the next epoch after a whole pass, and tell samplers and dataset.
        seed: What random reads depend on, besides epoch and position.
        rank: Which of several processes this is: each draws other numbers.
        shows_progress: Show a bar where samples must be read again to find a position.
        kwargs: What `DataLoader` takes.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        is_training: bool = False,
        seed: int = 0,
        rank: int = 0,
        shows_progress: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(dataset, **kwargs)
        self.is_training = is_training
        self.iteration = 0
        self.seed = seed_of(seed, rank)
        self.shows_progress = shows_progress
        self._start: dict[str, Any] | None = None  # where the next pass is to go on
        self._pass: IndexBatches | StreamPass | ForeignPass | None = None
        self._pass_epoch = 0
        self._kept_workers: Any = None
        self._is_resumed = False
        self._reads = SeededReads()
        self.chosen_rows: list[int] | None = None  # where the dataset is a part of another: which rows of it

    @property
    def order(self) -> SampleOrder | None:
        """The order that this loader cuts into batches, if it is one that can be sought in."""
        return find_order(self.batch_sampler)

    def given_indices(self) -> range | list[int] | None:
        """The rows that an evaluation was given so far, in their order; None where they have no index."""
        rows = self._pass
        if not isinstance(rows, IndexBatches) or self.is_training or not self.in_order:
            return None
        return range(rows.state()["num_samples"]) if self._is_sequential else rows.given_indices()

    @property
    def _is_sequential(self) -> bool:
        return isinstance(self.order, SequentialOrder)

    @property
    def num_batches_left(self) -> int | None:
        """How many batches the next pass gives, from where it starts; None where only reading can tell."""
        start = self._start_of(self.iteration) or {"num_samples": 0, "num_batches": 0}
        if self._is_stream and self._is_ours():
            return count_stream_left(self.dataset, self.batch_size or 1, self.drop_last, start)
        if not has_length(self):
            return None
        return count_left(self.batch_sampler if self._is_ours() else self, start)

    def state_dict(self) -> dict[str, Any]:
        """Where the pass is after the last batch handed out: plain values, and the dataset's own state."""
        if self._pass is None:
            return self._start or {"epoch": self.iteration, "num_samples": 0, "num_batches": 0}
        return {"epoch": self._pass_epoch, **self._pass.state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next pass go on where `state` was taken; batch size and workers may have changed since.

        A pass of another epoch, if `set_epoch` asks for one, starts at its beginning.
        """
        self._start, self._pass = dict(state), None
        self._is_resumed = True
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
            num_batches = -(-position // (self.batch_size or 1))
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
        start = self._start_of(self.iteration)
        if start is None and self._start is not None:
            self._catch_up(self._start)
        self._start = None
        self._pass_epoch = self.iteration
        batches = self._begin(start)
        return self._pass_over(batches) if self.is_training else batches

    def _pass_over(self, batches: Iterator[Any]) -> Iterator[Any]:
        """One training pass; only a whole one moves the epoch."""
        yield from batches
        self.iteration = self._pass_epoch + 1

    def _catch_up(self, state: dict[str, Any]) -> None:
        """Leave dataset and sampler as the epoch of `state` left them: they may carry something over."""
        if self._is_stream:
            load_end(self.dataset, state)
        elif self._is_ours():
            IndexBatches(self.batch_sampler, 0, state).catch_up()

    def _start_of(self, epoch: int) -> dict[str, Any] | None:
        """Where the next pass is to go on, if it is one of this epoch."""
        return self._start if self._start is not None and self._start["epoch"] == epoch else None

    def _begin(self, start: dict[str, Any] | None) -> Iterator[Any]:
        """The batches of a pass, and in `_pass` who counts them."""
        if not self._is_ours():
            self._pass = foreign = ForeignPass(self.batch_size or 1, start)
            return foreign.take(super().__iter__(), self.shows_progress)
        base_seed = self._draw_base_seed()
        if not self._is_stream:
            remembers = not self.is_training and not self._is_sequential
            seed = seed_of(self.seed, self.iteration)
            self._pass = rows = IndexBatches(self.batch_sampler, seed, start, remembers)
            return self._read_rows(rows) if self.num_workers == 0 else self._take_rows(rows, base_seed)
        self._pass = stream = StreamPass(self._stream_settings(), self.iteration, self.num_workers, start)
        if stream.num_workers == 0:
            return map(pin, stream.read_here()) if self._pins() else stream.read_here()
        return self._take_stream(stream, base_seed, is_kept=start is None)

    def _read_rows(self, rows: IndexBatches) -> Iterator[Any]:
        """Batches read in this process."""
        dataset, collate, pins, read = self.dataset, self.collate_fn, self._pins(), self._reads.read
        for seed, indices in rows:
            batch = read(seed, read_rows, dataset, indices, collate)
            rows.note_given()
            yield pin(batch) if pins else batch

    def _take_rows(self, rows: IndexBatches, base_seed: int) -> Iterator[Any]:
        """Batches that workers read, which start at once."""
        workers = self._kept_workers
        if workers is None:
            parts = {"dataset": SeededRows(self.dataset), "batch_sampler": Requests()}
            workers = self._build_workers(
                base_seed, self.num_workers, True, collate_fn=self.collate_fn, **parts
            )
        workers.batch_sampler.current = rows
        return rows.count(iter(workers))

    def _take_stream(self, stream: StreamPass, base_seed: int, is_kept: bool) -> Iterator[Any]:
        """Batches of a stream that workers read; those of a resumed pass serve no other."""
        workers = self._kept_workers if is_kept else None
        if workers is None:
            parts = {"dataset": stream.for_workers(), "batch_size": None, "collate_fn": as_it_is}
            workers = self._build_workers(base_seed, stream.num_workers, is_kept, **parts)
        workers.dataset.epoch.fill_(self.iteration)
        return stream.take(iter(workers))

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
        if self.persistent_workers and (self._kept_workers is not None or self._is_resumed):
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
        )

    @property
    def _is_stream(self) -> bool:
        return isinstance(self.dataset, IterableDataset)

    def _is_ours(self) -> bool:
        """Whether batches need nothing but indices or samples, a dataset and a collator."""
        is_pipe = isinstance(self.dataset, (IterDataPipe, MapDataPipe))
        return self.batch_sampler is not None and not is_pipe and not (self.timeout and not self.num_workers)

    def _pins(self) -> bool:
        return self.pin_memory and can_pin()


class ForeignPass:
    """A pass over batches that come in their own way: counted, and to go on, read and dropped.

    Args:
        batch_size: How many samples a batch counts as.
        start: The state of an earlier pass to go on from.
    """

    def __init__(self, batch_size: int, start: dict[str, Any] | None = None) -> None:
        self.batch_size = batch_size
        self.num_batches: int = start["num_batches"] if start else 0

    def take(self, batches: Iterator[Any], shows_progress: bool) -> Iterator[Any]:
        """The batches after those seen."""
        read_past(batches, self.num_batches, shows_progress)
        for batch in batches:
            self.num_batches += 1
            yield batch

    def state(self) -> dict[str, Any]:
        """How far the pass got."""
        return {"num_samples": self.num_batches * self.batch_size, "num_batches": self.num_batches}


def read_past(batches: Iterator[Any], num_batches: int, shows_progress: bool = True) -> None:
    """Read and drop, with a bar that shows rate and time to go where it takes longer than a second."""
    seen = islice(batches, num_batches)
    for _ in tqdm(seen, "Reading past", num_batches, unit=" batches", delay=1, disable=not shows_progress):
        pass


def has_length(dataset: Any) -> bool:
    """Whether `len(dataset)` gives an answer."""
    try:
        return len(dataset) is not None
    except (TypeError, AttributeError):  # some libraries raise the latter for a length they do not know yet
        return False


def pin(batch: Any) -> Any:
    """The batch in memory that a device reads directly."""
    from torch.utils.data._utils import pin_memory

    return pin_memory.pin_memory(batch)  # type: ignore[no-untyped-call]


def as_it_is(batch: Any) -> Any:
    """Workers of a stream collate by themselves."""
    return batch


def can_pin() -> bool:
    """Whether there is a device that reads pinned memory."""
    if torch.backends.mps.is_available():
        return False
    accelerator = getattr(torch, "accelerator", torch.cuda)  # torch before 2.6 has only the latter
    return bool(accelerator.is_available())
