"""Batches that this process reads itself, always one ahead of the one that is handed out."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch

from footplate import rng
from footplate.data.saved_state import is_plain, plain_copy

logger = logging.getLogger(__name__)


class _Read(NamedTuple):
    """A batch that no finished update has used, and what it takes to have it again."""

    batch: Any
    original: Any  # the batch in containers of its own: what uses a batch may take entries out of it
    versions: list[int] | None  # of its tensors, to see changes in place; None if nobody has it yet
    states: rng.RandomStates | None  # that it was read with, if a checkpoint cannot hold it
    place: Any  # where it starts, likewise


class ReadAhead:
    """Hands out a batch after the one behind it was read.

    Accelerate's loader reads in this order. Random augmentation and masking draw from the generators that
    dropout draws from, so the order decides the numbers of a run. Reading ahead also tells which batch is the
    last.

    A checkpoint holds the batches that were read and that no finished update has used, since reading them
    again would draw other numbers. If the safe loader could not read a batch back, the random states that it
    was read with are held instead. They must be copied before every read, which takes 13 µs.

    Args:
        batches: What reads a batch when asked for the next one.
        note_given: Called when a batch is handed out.
        keeps_unused: Whether batches are kept until `settle`, for `state`.
        start: What `state` said in an earlier process.
        find_place: Where the next batch starts, for data that can only tell before it is read.
    """

    def __init__(
        self,
        batches: Iterator[Any],
        note_given: Callable[[], None],
        keeps_unused: bool = False,
        start: Mapping[str, Any] | None = None,
        find_place: Callable[[], Any] | None = None,
    ) -> None:
        start = start or {}
        self._batches, self._note_given, self._find_place = batches, note_given, find_place
        self._keeps_unused = keeps_unused
        self._captures = keeps_unused  # until a batch was seen that a checkpoint can hold
        self._unused = deque(_describe(batch) for batch in start.get("ahead", ()))
        self._num_given = 0  # how many of these were handed out
        self._num_settled = len(self._unused)  # how many there were after the last finished update
        self._states: deque[rng.RandomStates] = deque(start.get("ahead_states", ()))
        self._is_over = False

    @property
    def is_last(self) -> bool:
        """Whether no batch comes after the one handed out last."""
        return self._is_over and self._num_given == len(self._unused)

    @property
    def place(self) -> Any:
        """Where the first unused batch starts, if it must be read again; else None."""
        return self._unused[0].place if self._unused else None

    def peek(self) -> Any:
        """The batch after the one handed out last, if there is one."""
        return self._unused[self._num_given].batch

    def settle(self) -> None:
        """An update was made of all that was handed out."""
        for _ in range(self._num_given):
            self._unused.popleft()
        self._num_given = 0
        self._num_settled = len(self._unused)

    def rewind(self) -> None:
        """Forget what was read since the last finished update: another process reads it again."""
        while len(self._unused) > self._num_settled:
            self._unused.pop()

    def state(self) -> dict[str, Any]:
        """What another process needs to give the unused batches first; empty where there are none."""
        reads = list(self._unused)
        states = [read.states for read in reads]
        if not reads:
            return {"ahead_states": list(self._states)} if self._states else {}
        if None not in states:
            return {"ahead_states": [rng.to_plain(state) for state in states if state is not None]}
        if all(is_plain(read.original) and _is_unchanged(read) for read in reads):
            return {"ahead": [plain_copy(read.original) for read in reads]}
        self._captures = True
        logger.warning(
            "A batch was changed in place, or has other types than the first one: a run resumed from this "
            "checkpoint reads it again and may draw other random numbers for it."
        )
        return {}

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        while not self._is_over and len(self._unused) < self._num_given + 2:
            self._read()
        if self._num_given == len(self._unused):
            raise StopIteration
        batch = self._unused[self._num_given].batch
        self._num_given += 1
        if not self._keeps_unused:
            self.settle()
        self._note_given()
        return batch

    def _read(self) -> None:
        """Read one batch, with the random states of an earlier process if it had read it before."""
        if not self._states:
            self._read_next()
            return
        # the run's generators are as they were after this read, and stay so
        with rng.scoped(states=self._states[0]):
            self._read_next()
        self._states.popleft()

    def _read_next(self) -> None:
        states = place = None
        if self._captures:
            states = rng.capture()
            place = self._find_place() if self._find_place is not None else None
        for batch in self._batches:
            self._captures = self._captures and not is_plain(batch)
            # an evaluation hands a batch out and forgets it
            read = _describe(batch) if self._keeps_unused else _Read(batch, batch, None, None, None)
            self._unused.append(read._replace(states=states, place=place) if self._captures else read)
            return
        self._is_over = True


class InTurn:
    """Hands out a batch after the one behind it was read, as `ReadAhead` does, and keeps none of them.

    For an evaluation, which is not taken up in its middle.

    Args:
        batches: What reads a batch when asked for the next one.
        note_given: Called when a batch is handed out.
    """

    is_last = False  # no batch comes after the one handed out last

    def __init__(self, batches: Iterator[Any], note_given: Callable[[], None]) -> None:
        self._batches, self._note_given = batches, note_given
        self._following: Any = _UNREAD

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = self._following
        if batch is _UNREAD:
            batch = next(self._batches, _END)
        if batch is _END:
            raise StopIteration
        self._following = following = next(self._batches, _END)
        if following is _END:
            self.is_last = True
        self._note_given()
        return batch

    def peek(self) -> Any:
        """The batch after the one handed out last, if there is one."""
        return self._following

    def state(self) -> dict[str, Any]:
        """The batch that was read and not handed out, for another process to give first, if there is one."""
        is_there = self._following is not _UNREAD and self._following is not _END
        return {"ahead": [plain_copy(self._following)]} if is_there and is_plain(self._following) else {}


_UNREAD, _END = object(), object()


def hand_out(batches: Iterator[Any], note_given: Callable[[], None], is_ahead: bool) -> Iterator[Any]:
    """The batches, each noted when it is handed out.

    Args:
        batches: Where they come from.
        note_given: Called when a batch is handed out.
        is_ahead: Hand out a batch after the one behind it was taken.
    """
    return ReadAhead(batches, note_given) if is_ahead else _note_each(batches, note_given)


def _note_each(batches: Iterator[Any], note_given: Callable[[], None]) -> Iterator[Any]:
    for batch in batches:
        note_given()
        yield batch


def _describe(batch: Any) -> _Read:
    if type(batch) is dict and all(type(value) is torch.Tensor for value in batch.values()):  # the usual one
        versions = None if torch.is_inference_mode_enabled() else [t._version for t in batch.values()]
        return _Read(batch, batch.copy(), versions, None, None)
    return _Read(batch, _copy_containers(batch), _versions(batch), None, None)


def _is_unchanged(read: _Read) -> bool:
    return read.versions is None or _versions(read.original) == read.versions


def _copy_containers(value: Any) -> Any:
    """The same leaves in new dictionaries, lists and tuples."""
    if type(value) is dict:
        return {key: _copy_containers(entry) for key, entry in value.items()}
    return type(value)(map(_copy_containers, value)) if type(value) in (list, tuple) else value


def _versions(value: Any) -> list[int]:
    """How often each tensor in a nested value was changed in place."""
    if isinstance(value, torch.Tensor):
        return [0 if value.is_inference() else value._version]
    if type(value) is dict:
        value = value.values()
    elif type(value) not in (list, tuple):
        return []
    return [version for entry in value for version in _versions(entry)]
