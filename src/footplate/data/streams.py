"""A pass over a stream: batches in the order they come, from any position, and how far each reader got."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info
from tqdm import tqdm

from footplate.data.reads import Collate, mix_seed, read_seeded, seed_of
from footplate.data.snapshots import find_state, has_state, plain_copy

logger = logging.getLogger(__name__)

_NOTHING: Any = object()
_OPENING = -1  # stands for a position where a stream draws before its first sample


@dataclass
class Share:
    """How far one reader of a stream got, and what it takes to go on from there."""

    num_samples: int = 0
    batch_sizes: list[list[int]] = field(default_factory=list)  # from this sample on, so many to a batch
    stream: Any = None  # the dataset's own state, if it has one
    has_ended: bool = False

    def with_batch_size(self, batch_size: int) -> Share:
        """The same place, read on in batches of `batch_size`."""
        if self.batch_sizes and self.batch_sizes[-1][1] == batch_size:
            return self
        return replace(self, batch_sizes=[*self.batch_sizes, [self.num_samples, batch_size]])

    def batches(self) -> Iterator[tuple[int, int]]:
        """First sample and size of each batch that was read."""
        ends = [start for start, _ in self.batch_sizes[1:]] + [self.num_samples]
        for (first, size), end in zip(self.batch_sizes, ends, strict=True):
            for start in range(first, end, size):
                yield start, min(size, end - start)


@dataclass
class StreamSettings:
    """What does not change from pass to pass."""

    dataset: Any
    batch_size: int
    drop_last: bool
    collate: Collate
    seed: int
    is_training: bool = False
    shows_progress: bool = True


class StreamReader:
    """The batches of a stream, or of a worker's part of it, each read with the seed of its position."""

    def __init__(self, settings: StreamSettings, seed: int, share: Share, worker: int | None = None) -> None:
        self.settings, self.dataset = settings, settings.dataset
        self.seed = seed
        self.share = share.with_batch_size(settings.batch_size)
        self.worker = worker
        self._keeps_place = keeps_place(self.dataset)
        self._has_begun = False
        self._is_ahead = False  # a sample more was read than was given: the dataset's state is of no use
        self._length = find_length(self.dataset) if worker is None else None

    def __iter__(self) -> Iterator[Any]:
        if self.share.has_ended:
            if self.worker is None:
                _load_own(self.dataset, self.share.stream)
            return
        samples = read_seeded(mix_seed(self.seed, _OPENING), self._open)
        if samples is _NOTHING:
            samples = self._read_past()
        while not self.share.has_ended:
            position = self.share.num_samples
            batch = read_seeded(mix_seed(self.seed, position), self._read, samples)
            if not self._has_begun:
                self._has_begun = True
                self._forget_start()
            if batch is _NOTHING:
                return
            if self.share.num_samples == self._length and not self.share.has_ended:
                samples = read_seeded(mix_seed(self.seed, self._length), self._let_end, samples)
            yield batch

    def state(self) -> Share:
        """How far the reader got with the last batch it gave."""
        if not self._has_begun:
            return self.share
        is_known = self._keeps_place and not self._is_ahead
        return replace(self.share, stream=find_state(self.dataset) if is_known else None)

    def _open(self) -> Any:
        """The samples from the start on, or nothing where only reading leads there."""
        share = self.share
        if share.num_samples == 0 and share.stream is None:
            return iter(self.dataset)
        if share.stream is not None and has_state(self.dataset):
            self.dataset.load_state_dict(plain_copy(share.stream))
            return iter(self.dataset)
        # a worker's part of a stream is no stream of its own that could skip
        if self.worker is None and hasattr(self.dataset, "skip") and not _is_from_datasets(self.dataset):
            skipped = self.dataset.skip(share.num_samples)
            return iter(self.dataset if skipped is None else skipped)
        return _NOTHING

    def _read_past(self) -> Iterator[Any]:
        """The samples after those seen: read again with the seeds of then, dropped and not collated."""
        count, is_spokesman = self.share.num_samples, not self.worker
        if is_spokesman:
            logger.warning(
                "%s has neither a state nor skip() that leads to sample %d: reading and dropping what is "
                "before it.",
                type(self.dataset).__name__,
                count,
            )
        samples: Iterator[Any] = read_seeded(mix_seed(self.seed, _OPENING), iter, self.dataset)
        is_quiet = not (is_spokesman and self.settings.shows_progress)
        with tqdm(total=count, desc="Reading past", unit=" samples", delay=1, disable=is_quiet) as progress:
            for start, size in self.share.batches():
                num_read = read_seeded(mix_seed(self.seed, start), _drop, samples, size)
                progress.update(num_read)
                if num_read < size:
                    logger.warning("The stream ended before sample %d: it gives less than it did.", count)
                    return iter(())
        return samples

    def _read(self, samples: Iterator[Any]) -> Any:
        rows = list(islice(samples, self.settings.batch_size))
        is_short = len(rows) < self.settings.batch_size
        if is_short:
            self.share = replace(self.share, has_ended=True)
        if not rows or (is_short and self.settings.drop_last):
            return _NOTHING
        self.share = replace(self.share, num_samples=self.share.num_samples + len(rows))
        return self.settings.collate(rows)

    def _let_end(self, samples: Iterator[Any]) -> Iterator[Any]:
        """Let a stream that gave as many samples as it has run to its end: nobody may ask for more."""
        for extra in samples:
            self._length, self._is_ahead = None, True
            return chain([extra], samples)
        self.share = replace(self.share, has_ended=True)
        return samples

    def _forget_start(self) -> None:
        """Let the next pass begin at the beginning: streams of `datasets` keep the state they were given."""
        if self.share.stream is not None and _is_from_datasets(self.dataset):
            self.dataset.load_state_dict(None)


class WorkerStream(IterableDataset[Any]):
    """What workers iterate: batches of their part of a stream, each with a note of who read how far."""

    def __init__(self, settings: StreamSettings, shares: list[Share], last_worker: int) -> None:
        self.settings = settings
        self.shares = shares
        self.last_worker = last_worker
        self.epoch = torch.zeros((), dtype=torch.int64)
        self.epoch.share_memory_()  # type: ignore[no-untyped-call]  # for workers that outlive an epoch

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        assert worker is not None
        epoch = int(self.epoch)
        if self.settings.is_training and hasattr(self.settings.dataset, "set_epoch"):
            self.settings.dataset.set_epoch(epoch)
        seed = seed_of(self.settings.seed, epoch, -2 - worker.id)  # below what positions are mixed in with
        reader = StreamReader(self.settings, seed, self.shares[worker.id], worker.id)
        if worker.id <= self.last_worker:
            yield None  # had its turn in this round already
        for batch in reader:
            yield worker.id, reader.state(), batch


class StreamPass:
    """One pass over a stream by one reader or several, and how far it got.

    Readers give batches in turn. Each goes on where it was: from its state if the dataset has one, else by
    reading again what it read. An epoch is finished by as many workers as began it, for they shared it out.

    Args:
        settings: What to read, and how.
        epoch: Which pass it is.
        num_workers: How many processes read; 0 for this one alone.
        start: The state of an earlier pass to go on from.
    """

    def __init__(
        self, settings: StreamSettings, epoch: int, num_workers: int, start: dict[str, Any] | None = None
    ) -> None:
        start = start or {}
        self.settings, self.epoch = settings, epoch
        self.num_workers: int = start.get("num_workers", num_workers)
        self.num_batches: int = start.get("num_batches", 0)
        if "shares" in start:
            self.shares = [Share(**share) for share in start["shares"]]
            self.last_worker: int = start["last_worker"]
        else:
            num_readers = max(self.num_workers, 1)
            num_samples = start.get("num_samples", 0)
            self.shares, self.last_worker = deal_out(num_samples, settings.batch_size, num_readers)
        self._reader = StreamReader(settings, seed_of(settings.seed, epoch), self.shares[0])

    def read_here(self) -> Iterator[Any]:
        """The batches, read in this process."""
        for batch in self._reader:
            self.num_batches += 1
            yield batch

    def for_workers(self) -> WorkerStream:
        """What to give to the loader whose workers read."""
        return WorkerStream(self.settings, list(self.shares), self.last_worker)

    def take(self, items: Iterator[Any]) -> Iterator[Any]:
        """The batches that workers read, their notes taken off."""
        for item in items:
            if item is None:
                continue
            self.last_worker, share, batch = item
            self.shares[self.last_worker] = share
            self.num_batches += 1
            yield batch

    def state(self) -> dict[str, Any]:
        """How far the pass got, counting what was handed out and not what was read ahead."""
        shares = self.shares if self.num_workers else [self._reader.state()]
        return {
            "num_samples": sum(share.num_samples for share in shares),
            "num_batches": self.num_batches,
            "num_workers": self.num_workers,
            "last_worker": self.last_worker,
            "shares": [vars(share).copy() for share in shares],
        }


def deal_out(num_samples: int, batch_size: int, num_readers: int) -> tuple[list[Share], int]:
    """The shares of readers that took turns until so many samples were given, and who was the last."""
    rounds, rest = divmod(num_samples, batch_size * num_readers)
    shares = []
    for reader in range(num_readers):
        of_last_round = min(max(rest - reader * batch_size, 0), batch_size)
        shares.append(Share(rounds * batch_size + of_last_round, [[0, batch_size]]))
    return shares, (rest + batch_size - 1) // batch_size - 1


def load_end(dataset: Any, state: dict[str, Any]) -> None:
    """Leave a dataset as an earlier pass left it: a stream of the user's own may go on from there."""
    if state.get("num_workers") == 0:
        _load_own(dataset, state["shares"][0]["stream"])


def count_stream_left(dataset: Any, batch_size: int, drop_last: bool, state: dict[str, Any]) -> int | None:
    """How many batches an epoch still has after `state`; None where the stream does not know its length."""
    if "shares" in state and all(share["has_ended"] for share in state["shares"]):
        return 0
    length = find_length(dataset)
    if length is None:
        return None
    samples_left = max(length - int(state["num_samples"]), 0)
    return samples_left // batch_size if drop_last else -(-samples_left // batch_size)


def find_length(dataset: Any) -> int | None:
    """How many samples a stream says it has."""
    try:
        return len(dataset)
    except (TypeError, AttributeError, NotImplementedError):
        return None


def keeps_place(dataset: Any) -> bool:
    """Whether a dataset's state leads back to the very next sample.

    The state of a stream of `datasets` does not hold the samples that wait in a shuffle buffer. Nor does it
    hold random numbers that a `map` drew for samples which a later stage read ahead: random maps come last.
    """
    if not has_state(dataset):
        return False
    parts: list[Any] = [getattr(dataset, "_ex_iterable", None)] if _is_from_datasets(dataset) else []
    while parts:
        part = parts.pop()
        if type(part).__name__ == "BufferShuffledExamplesIterable":
            return False
        parts.extend(getattr(part, "ex_iterables", ()))
        if hasattr(part, "ex_iterable"):
            parts.append(part.ex_iterable)
    return True


def _load_own(dataset: Any, stream: Any) -> None:
    """Put a stream back into its state, unless `datasets` made it: these belong to one epoch alone."""
    if stream is not None and has_state(dataset) and not _is_from_datasets(dataset):
        dataset.load_state_dict(plain_copy(stream))


def _is_from_datasets(dataset: Any) -> bool:
    """Whether this is a stream of the `datasets` library, whose skip() gives another order after an epoch."""
    return type(dataset).__module__.partition(".")[0] == "datasets"


def _drop(samples: Iterator[Any], count: int) -> int:
    """Read and forget; how many there were."""
    return sum(1 for _ in islice(samples, count))
