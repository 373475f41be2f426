"""A pass over rows that have an index: which index lists come when, from any position, and how far it got."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any

import torch
from torch.utils.data import BatchSampler, SequentialSampler

from footplate.data.order import SampleOrder
from footplate.data.reads import mix_seed
from footplate.data.snapshots import find_state, generators_at, has_state, plain_copy, save_generators

logger = logging.getLogger(__name__)

_KEPT = ("order", "length", "generators")


class IndexBatches:
    """The index lists of one pass, each with its seed; iterated once, perhaps far ahead of what is used.

    Args:
        batch_sampler: Where index lists come from, or what to cut them by if it is torch's own class.
        seed: What the seeds of this pass are made from.
        start: The state of an earlier pass to go on from.
        remembers: Keep the lists, for `given_indices`.
    """

    def __init__(
        self, batch_sampler: Any, seed: int, start: dict[str, Any] | None = None, remembers: bool = False
    ) -> None:
        self.batch_sampler: Any = batch_sampler
        self.seed = seed
        self.start = start or {}
        self.order = find_order(batch_sampler)
        # what a repetition of this pass would need to know
        self._pass_state = {name: self.start[name] for name in _KEPT if name in self.start}
        self._ahead: deque[tuple[int, Any]] = deque()  # rows, and state of the sampler, of each list drawn
        self._num_samples = self.start.get("num_samples", 0)
        self._num_batches = self.start.get("num_batches", 0)
        self._sampler_state: Any = self.start.get("sampler")
        self._lists: list[Any] | None = [] if remembers else None

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        position = self._num_samples
        for indices, sampler_state in self._draw():
            self._ahead.append((len(indices), sampler_state))
            if self._lists is not None:
                self._lists.append(indices)
            yield mix_seed(self.seed, position), indices
            position += len(indices)

    def note_given(self) -> None:
        """The batch of the next list was handed out."""
        num_rows, self._sampler_state = self._ahead.popleft()
        self._num_samples += num_rows
        self._num_batches += 1

    def count(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches that others read of these lists."""
        for batch in batches:
            self.note_given()
            yield batch

    def given_indices(self) -> list[int]:
        """The rows handed out so far, in their order."""
        if self._lists is None:
            return []
        return [int(index) for indices in self._lists[: self._num_batches] for index in indices]

    def state(self) -> dict[str, Any]:
        """How far the pass got, counting what was handed out and not what was drawn ahead."""
        state = {"num_samples": self._num_samples, "num_batches": self._num_batches, **self._pass_state}
        return state if self._sampler_state is None else {**state, "sampler": self._sampler_state}

    def catch_up(self) -> None:
        """Leave a sampler that carries something over to the next epoch as this pass had left it."""
        stateful, own = _find_stateful(self.batch_sampler), _own_generator(self.batch_sampler)
        if self.order is not None:
            return
        if stateful is not None and "sampler" in self.start:
            stateful.load_state_dict(plain_copy(self.start["sampler"]))
        elif stateful is None and own is not None and "generators" in self.start:
            self._replay()

    def _draw(self) -> Iterator[tuple[Any, Any]]:
        """Index lists from the start on, and the state of a sampler that has one after each."""
        if self.order is not None:
            return ((indices, None) for indices in self._cut_order(self.order))
        stateful = _find_stateful(self.batch_sampler)
        if stateful is None:
            return ((indices, None) for indices in self._replay())
        if "sampler" in self.start:
            stateful.load_state_dict(plain_copy(self.start["sampler"]))
            lists = self._all_lists()
        else:
            lists = self._lists_after(self._num_samples)
        return ((indices, find_state(stateful)) for indices in lists)

    def _cut_order(self, order: SampleOrder) -> Iterator[list[int]]:
        """Slices of the plan; nothing before the start is looked at."""
        settings = {**order.settings(), **self.start.get("order", {})}
        self._warn_of_other_length(len(order))
        self._pass_state = {"order": settings, "length": len(order)}
        order.seek(self._num_samples, settings)
        return cut_batches(order.draw(), self.batch_sampler.batch_size, self.batch_sampler.drop_last)

    def _replay(self) -> Iterator[Any]:
        """The lists of a sampler that only knows how to start over, on the numbers that it first drew from.

        What it draws when a pass starts comes out the same. A sampler that draws from the global generators
        while the epoch runs needs a `state_dict` to be resumed exactly.
        """
        own = _own_generator(self.batch_sampler)
        is_fixed = type(getattr(self.batch_sampler, "sampler", None)) is SequentialSampler
        saved = self.start.get("generators")
        if not is_fixed:
            self._pass_state = {"generators": saved if saved is not None else save_generators(own)}
        if self._num_samples == 0:
            return self._all_lists()
        with generators_at(saved, own):
            return self._lists_after(self._num_samples)

    def _lists_after(self, num_samples: int) -> Iterator[Any]:
        """The lists left after some samples; one that was half used is cut."""
        if num_samples == 0:
            return self._all_lists()
        if type(self.batch_sampler) is BatchSampler:
            indices = iter(self.batch_sampler.sampler)
            next(islice(indices, num_samples - 1, num_samples), None)
            return cut_stream(indices, self.batch_sampler.batch_size, self.batch_sampler.drop_last)
        lists = self._all_lists()
        for used in lists:
            num_samples -= len(used)
            if num_samples <= 0:
                half_used = [used[num_samples:]] if num_samples < 0 else []
                return chain(half_used, lists)
        return lists

    def _all_lists(self) -> Iterator[Any]:
        return iter(self.batch_sampler)

    def _warn_of_other_length(self, length: int) -> None:
        saved = self.start.get("length", length)
        if saved != length:
            logger.warning(
                "The training data has %d samples and had %d when the checkpoint was written: this epoch "
                "has another order now, so some samples may come twice and some not at all.",
                length,
                saved,
            )


class Requests:
    """The batch sampler of workers that may outlive a pass: whichever lists are current."""

    current: IndexBatches

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        return iter(self.current)


def find_order(batch_sampler: Any) -> SampleOrder | None:
    """The order that is cut into batches, if it is one that can be sought in."""
    if type(batch_sampler) is not BatchSampler:  # another class may arrange batches as it likes
        return None
    sampler = batch_sampler.sampler
    return sampler if isinstance(sampler, SampleOrder) else None


def cut_batches(indices: Sequence[int], batch_size: int, drop_last: bool) -> Iterator[list[int]]:
    """`indices` in slices of `batch_size`, the last one perhaps shorter or dropped."""
    end = len(indices) // batch_size * batch_size if drop_last else len(indices)
    return (list(indices[start : start + batch_size]) for start in range(0, end, batch_size))


def cut_stream(indices: Iterator[int], batch_size: int, drop_last: bool) -> Iterator[list[int]]:
    """The same for indices that come one by one."""
    while len(batch := list(islice(indices, batch_size))) == batch_size:
        yield batch
    if batch and not drop_last:
        yield batch


def count_left(batch_sampler: Any, state: dict[str, Any]) -> int:
    """How many batches an epoch still has after what `state` says was used."""
    if type(batch_sampler) is not BatchSampler:
        return max(len(batch_sampler) - int(state.get("num_batches", 0)), 0)
    samples_left = max(len(batch_sampler.sampler) - state["num_samples"], 0)  # type: ignore[arg-type]
    num_full, rest = divmod(samples_left, batch_sampler.batch_size)
    return int(num_full + (rest > 0 and not batch_sampler.drop_last))


def _find_stateful(batch_sampler: Any) -> Any:
    """The batch sampler or the sampler in it, whichever can be put back into a state."""
    candidates = (batch_sampler, getattr(batch_sampler, "sampler", None))
    return next((sampler for sampler in candidates if has_state(sampler)), None)


def _own_generator(batch_sampler: Any) -> torch.Generator | None:
    """The generator that a sampler was given to draw from."""
    for sampler in (batch_sampler, getattr(batch_sampler, "sampler", None)):
        generator = getattr(sampler, "generator", None)
        if isinstance(generator, torch.Generator):
            return generator
    return None
