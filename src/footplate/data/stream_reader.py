"""Read the batches of a stream, or of a worker's part of it, from any position."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from tqdm import tqdm

from footplate import rng
from footplate.data.generators import HeldGenerators
from footplate.data.saved_state import find_state, has_state, is_plain, plain_copy
from footplate.data.shares import ALONE, Ranks, Turn, deal_samples
from footplate.data.stream_watch import FirstBatch, is_from_datasets
from footplate.data.worker_reads import Collate, mix_seed, seed_generators

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
    held: Any = None  # the generators that a worker's copy of dataset and collator holds, as they are here
    held_before: Any = None  # and as they were when the pass began
    head: list[Any] | None = None  # the first samples, to fill up the last round of several processes with

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
    finish: Callable[[Any], Any] | None = None  # what this process, not a worker, makes of a batch
    ranks: Ranks = ALONE  # several processes read the same stream, and each keeps its part of a round

    @property
    def round_size(self) -> int:
        """Samples that a batch of each process takes together."""
        return self.batch_size * self.ranks.count


class StreamReader:
    """The batches of a stream, or of a worker's part of it.

    Args:
        settings: What to read, and how.
        share: Where to start.
        worker: Which worker this is; None for the process itself, which draws from the run's generators.
        seed: What a worker's generators are seeded with, besides the position.
        start_states: The random states that the process itself opened the stream with.
    """

    def __init__(
        self,
        settings: StreamSettings,
        share: Share,
        worker: int | None = None,
        seed: int = 0,
        start_states: rng.RandomStates | None = None,
    ) -> None:
        self.settings, self.dataset = settings, settings.dataset
        self.share = share.with_batch_size(settings.round_size)
        self.turn: Turn | None = None  # of the last batch
        self.worker, self.seed = worker, seed
        self.start_states = start_states
        self._keeps_place = keeps_place(self.dataset)
        self._held = HeldGenerators()  # of a worker's own copies; the process's are part of the random state
        self._first: FirstBatch | None = None
        self.has_begun = False

    def __iter__(self) -> Iterator[Any]:
        if self.share.has_ended:
            if self.worker is None:
                load_own(self.dataset, self.share.stream)
            return
        if self.settings.is_training and not self.worker:  # one of several workers is enough
            self._first = FirstBatch(self.dataset)
        samples = self._open() if self.worker is None else self._open_in_worker()
        while not self.share.has_ended:
            self._seed_worker(self.share.num_samples)
            batch = self._read(samples)
            if not self.has_begun:
                self.has_begun = True
                self._forget_start()
            if batch is _NOTHING:
                return
            yield batch

    def state(self) -> Share:
        """How far the reader got with the last batch it gave."""
        if not self.has_begun:
            return self.share
        stream = find_state(self.dataset) if self._keeps_place else None
        return replace(self.share, stream=stream, held=self._held.capture())

    def _seed_worker(self, position: int) -> None:
        if self.worker is not None:
            seed_generators(mix_seed(self.seed, position))

    def _open_in_worker(self) -> Iterator[Any]:
        """The samples from the start on, with the generators that a worker's copy holds.

        They are not seeded by position: a stream may draw its order from them, alike in every worker.
        """
        self._held = HeldGenerators(dataset=self.dataset, collate=self.settings.collate)
        if self.share.held_before is None:
            self.share = replace(self.share, held_before=self._held.capture())
        self._held.restore(self.share.held_before)
        samples = self._open()
        self._held.restore(self.share.held or {})
        return samples

    def _open(self) -> Iterator[Any]:
        """The samples from the start on."""
        share = self.share
        self._seed_worker(_OPENING)
        if share.stream is not None and has_state(self.dataset):
            self.dataset.load_state_dict(plain_copy(share.stream))
            return iter(self.dataset)
        if share.num_samples == 0:
            return iter(self.dataset)
        # a worker's part of a stream is not a stream of its own that could skip
        if self.worker is None and hasattr(self.dataset, "skip") and not is_from_datasets(self.dataset):
            skipped = self.dataset.skip(share.num_samples)
            return iter(self.dataset if skipped is None else skipped)
        # The stream may draw its order when it opens: let it draw the same again, and disturb nothing.
        with rng.scoped(states=self.start_states):
            return self._read_past()

    def _read_past(self) -> Iterator[Any]:
        """The samples after those seen, which are read again, dropped and not collated."""
        count, is_first_reader = self.share.num_samples, not self.worker
        if is_first_reader:
            logger.warning(
                "%s has neither a state nor skip() that leads to sample %d: reading and dropping what is "
                "before it.",
                type(self.dataset).__name__,
                count,
            )
        samples: Iterator[Any] = iter(self.dataset)
        is_quiet = not (is_first_reader and self.settings.shows_progress)
        with tqdm(total=count, desc="Reading past", unit=" samples", delay=1, disable=is_quiet) as progress:
            for start, size in self.share.batches():
                self._seed_worker(start)
                num_read = sum(1 for _ in islice(samples, size))
                progress.update(num_read)
                if num_read < size:
                    logger.warning("The stream ended before sample %d: it gives less than it did.", count)
                    return iter(())
        return samples

    def _read(self, samples: Iterator[Any]) -> Any:
        rows = list(islice(samples, self.settings.round_size))
        if self._first is not None:
            self._first.report()
            self._first = None
        is_short = len(rows) < self.settings.round_size
        if is_short:
            self.share = replace(self.share, has_ended=True)
        if not rows or (is_short and self.settings.drop_last):
            return _NOTHING
        self.share = replace(self.share, num_samples=self.share.num_samples + len(rows))
        return self.settings.collate(self._deal(rows))

    def _deal(self, rows: list[Any]) -> list[Any]:
        """The samples of this process."""
        ranks = self.settings.ranks
        if ranks.count == 1:
            self.turn = Turn((), len(rows), len(rows))
            return rows
        if self.share.num_samples == len(rows):  # the first round; Accelerate fills up with so many of it
            head = rows[: ranks.count]
            self.share = replace(self.share, head=head if all(map(is_plain, head)) else None)
        turn = deal_samples(rows, ranks, self.settings.batch_size, self.share.head or ())
        self.turn = turn._replace(rows=())
        own: list[Any] = turn.rows
        return own

    def _forget_start(self) -> None:
        """Let the next pass begin at the beginning: streams of `datasets` keep the state they were given."""
        if self.share.stream is not None and is_from_datasets(self.dataset):
            self.dataset.load_state_dict(None)


def keeps_place(dataset: Any) -> bool:
    """Whether a dataset's state leads back to the very next sample.

    The state of a stream of `datasets` does not hold the samples that wait in a shuffle buffer. Nor does it
    hold random numbers that a `map` drew for samples which a later stage read ahead: random maps come last.
    """
    if not has_state(dataset):
        return False
    parts: list[Any] = [getattr(dataset, "_ex_iterable", None)] if is_from_datasets(dataset) else []
    while parts:
        part = parts.pop()
        if type(part).__name__ == "BufferShuffledExamplesIterable":
            return False
        parts.extend(getattr(part, "ex_iterables", ()))
        if hasattr(part, "ex_iterable"):
            parts.append(part.ex_iterable)
    return True


def load_own(dataset: Any, stream: Any) -> None:
    """Put a stream back into its state, unless `datasets` made it: these belong to one epoch alone."""
    if stream is not None and has_state(dataset) and not is_from_datasets(dataset):
        dataset.load_state_dict(plain_copy(stream))
