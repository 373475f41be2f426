"""The training data as one run reads it: any loader, and how far the run has got in it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from torch.utils.data import DataLoader

from footplate import rng
from footplate.batch import find_length
from footplate.comm import find_batch_size, sum_integers
from footplate.data.foreign_pass import read_past
from footplate.data.generators import HeldGenerators
from footplate.data.loader import Loader
from footplate.data.shares import DIVIDE, FILL
from footplate.data.tokens import TokenBatches

logger = logging.getLogger(__name__)

_START, _LAST = "epoch_start_states", "last_read"

Read = tuple[rng.RandomStates, int]  # the random states before batches were read, and how many these were


class Feed:
    """Counts what a run has used of its loader, epoch by epoch, and starts where an earlier run stopped.

    Args:
        loader: Anything that gives batches.
        epoch: The epoch to begin with.
        samples_done: Samples of that epoch that an earlier run has used.
        batches_done: Micro-batches of that epoch that these samples are, cut as the loader cuts them now.
        is_begun: The earlier run had started the loader for that epoch, which draws a random number.
    """

    def __init__(
        self,
        loader: Any = None,
        epoch: int = 0,
        samples_done: int = 0,
        batches_done: int = 0,
        is_begun: bool = False,
    ) -> None:
        self.loader = loader
        self.epoch, self.samples_done, self.batches_done = epoch, samples_done, batches_done
        self.is_begun, self.is_over = is_begun, False
        self.random_states: rng.RandomStates | None = None  # to go on with, in the epoch that is resumed
        self._is_ours = isinstance(loader, Loader)
        self._is_loaded = False  # the loader goes to its place by itself
        self._has_started = False
        # of a loader of the user's own: its state before the current update, or the random states before
        # the epoch, which decide on the order if it shuffles
        self._state: dict[str, Any] | None = None
        self._start_states: rng.RandomStates | None = None
        # of such a loader too: how the batches of the current and of the last update were read, as it may
        # have read one more with them, which waits
        self._reading: rng.RandomStates | None = None
        self._last: Read | None = None

    def resume(self, state: dict[str, Any] | None) -> None:
        """Go on from the stored state, if there is one and the loader takes it."""
        if state is None:
            return
        if _START in state:
            self._start_states, self._last = state[_START], state.get(_LAST)
        elif hasattr(self.loader, "load_state_dict"):
            self.loader.load_state_dict(state)
            self._is_loaded = True

    def start_epoch(self, epoch: int) -> Iterator[Any]:
        """The batches of `epoch`: those left of it if the run resumes inside it, else all."""
        is_inside = self.is_begun and epoch == self.epoch
        if not self._has_started and epoch > 0:
            self._start_workers()
        self._has_started = True
        if not is_inside:
            self.epoch, self.samples_done, self.batches_done = epoch, 0, 0
        self.is_begun, self.is_over = True, False
        if self._is_ours:
            self.loader.keeps_unused = True
        if hasattr(self.loader, "set_epoch"):
            self.loader.set_epoch(epoch)
        is_loaded, self._is_loaded = self._is_loaded, False
        if is_inside and not is_loaded:
            batches = self._start_inside()
        else:
            self._start_states = None if self._is_ours else rng.to_plain(rng.capture())
            self._last = None
            batches = iter(self.loader)
        if is_inside and self.random_states is not None:
            rng.restore(self.random_states)  # iter() draws a number, which the earlier run drew already
        return batches

    def _start_workers(self) -> None:
        """Start workers of a user's loader that live on, as the earlier run had: it draws a number."""
        if not self._is_ours and lives_on(self.loader):
            with rng.scoped():
                next(iter(self.loader), None)

    def _start_inside(self) -> Iterator[Any]:
        """The batches left of an epoch, of a loader that cannot go to its place by itself."""
        if self._start_states is None:
            return start_at(self.loader, self.samples_done, self.batches_done)
        states, num_last = self._last or (None, 0)
        with rng.scoped(states=self._start_states):  # a loader that shuffles must shuffle as it did
            batches = start_at(self.loader, self.samples_done, self.batches_done - num_last)
            if states is not None:
                rng.restore(states)
                read_past(batches, num_last, shows_progress=False)
            return batches

    def begin_update(self, states: rng.RandomStates | None = None) -> None:
        """Note the state of a loader of the user's own: what it gives from now on may not be used.

        Args:
            states: The random states, as they are now.
        """
        if not self._is_ours:
            self._state, self._reading = find_state(self.loader), states

    def is_at_end(self, micro_batches: Sequence[Any]) -> bool:
        """Whether the epoch ends: nothing was read, on one rank if each reads its part of a stream."""
        if self.may_end_early:
            return bool(sum_integers([not micro_batches])[0])
        return not micro_batches

    def advance(self, micro_batches: Sequence[Any]) -> None:
        """An update was made of these."""
        self.batches_done += len(micro_batches)
        self._state = None
        if self._is_ours and self.loader.ranks.count > 1:  # other ranks have used some too
            self.loader.settle()
            self.samples_done = self.loader.samples_done
            return
        self.samples_done += sum(find_batch_size(batch) or 0 for batch in micro_batches)
        if self._is_ours:
            self.loader.settle()
        elif self._reading is not None:
            self._last = (self._reading, len(micro_batches))

    def rewind(self) -> None:
        """What was read since the last update is not part of the state: a resumed run reads it again."""
        if self._is_ours:
            self.loader.rewind()

    def weights(self) -> list[float]:
        """What the loss of each micro-batch of the current update is multiplied by; empty for 1 each."""
        is_divided = self._is_ours and self.loader.ranks.ending == DIVIDE
        return self.loader.given_weights() if is_divided else []

    @property
    def may_end_early(self) -> bool:
        """Whether other ranks may have more batches in this epoch."""
        return self._is_ours and self.loader.may_end_early

    @property
    def reads_stream_here(self) -> bool:
        """Whether this process reads the samples of a stream, which cannot be read twice."""
        return self._is_ours and self.loader.reads_stream_here

    def state(self) -> dict[str, Any] | None:
        """Where the loader was after the last update, as far as it can be known."""
        state = self._state if self._state is not None else find_state(self.loader)
        if state is None and self._start_states is not None:
            last = {} if self._last is None else {_LAST: (rng.to_plain(self._last[0]), self._last[1])}
            return {_START: self._start_states, **last}
        return state


def start_at(loader: Any, num_samples: int, num_batches: int) -> Iterator[Any]:
    """A pass over any loader past what was seen: sought where that is possible, else read and dropped.

    Args:
        loader: A `Loader`, or anything that gives batches.
        num_samples: How many samples of the epoch were used.
        num_batches: How many batches of the epoch they were, cut as the loader cuts them now.
    """
    if isinstance(loader, Loader):
        loader.seek(num_samples, num_batches)
        return iter(loader)
    logger.warning("%s cannot seek: reading and dropping %d batches.", type(loader).__name__, num_batches)
    batches: Iterator[Any] = iter(loader)
    read_past(batches, num_batches)
    return batches


def lives_on(loader: Any) -> bool:
    """Whether the workers of a loader go on from one epoch to the next."""
    return bool(getattr(loader, "persistent_workers", False) and getattr(loader, "num_workers", 0))


def describe_fill(loader: Any) -> str | None:
    """What to say if several ranks fill up the last update of an epoch with rows from its start."""
    if not isinstance(loader, Loader) or loader.ranks.count == 1 or loader.ranks.ending != FILL:
        return None
    num_rows, size = find_length(getattr(loader.batch_sampler, "sampler", None)), loader.total_batch_size
    if isinstance(loader.batch_sampler, TokenBatches):  # a round is a multiple of the processes
        size = loader.ranks.count
    if not num_rows or not size or num_rows % size == 0 or loader.drop_last:
        return None
    return (
        f"{num_rows} rows are shared by {loader.ranks.count} processes in rounds of {size}: the last one of "
        f"an epoch is filled with {-num_rows % size} rows from its start, which count twice. Set "
        "accelerator_config={'even_batches': False} to use every row once, as one process does."
    )


def search_data(held: HeldGenerators, loader: Any, **others: Any) -> None:
    """Find the generators that the data of a run holds, and name what a checkpoint cannot hold of it.

    The sampler of a `Loader` is left out: it repeats its draws from the start of the epoch.
    """
    if not isinstance(loader, DataLoader):
        held.search(train_dataloader=loader, **others)
    else:
        collate = getattr(loader.collate_fn, "data_collator", loader.collate_fn)
        parts = {"train_dataset": loader.dataset, "data_collator": collate, **others}
        held.search(makes=loader.num_workers == 0, **parts)
        sampler = held if not isinstance(loader, Loader) else HeldGenerators()
        sampler.search(sampler=loader.batch_sampler, generator=loader.generator, without=held)
        held.lost.update(sampler.lost)
    if lives_on(loader) and not isinstance(loader, Loader):
        logger.warning(
            "%s has persistent_workers=True, and a checkpoint cannot hold the random states of its workers: "
            "what they draw at random differs after a resume in the second epoch or later. Set "
            "persistent_workers=False, or let Trainer make the loader (dataloader_persistent_workers=True).",
            type(loader).__name__,
        )
    held.name_lost()


def find_state(loader: Any) -> dict[str, Any] | None:
    """What a loader says about its position; None where it cannot say."""
    # accelerate gives every loader a state_dict, which fails unless it was asked to make a stateful one
    if not hasattr(loader, "state_dict") or not getattr(loader, "use_stateful_dataloader", True):
        return None
    state: dict[str, Any] = loader.state_dict()
    return state
