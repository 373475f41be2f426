"""A pass over rows that have an index: which index lists come when, from any position, and how far it got."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice, repeat
from typing import Any

from torch.utils.data import BatchSampler, SequentialSampler

from footplate import rng
from footplate.batch import find_length
from footplate.data.generators import HeldGenerators
from footplate.data.order import SampleOrder
from footplate.data.read_ahead import InTurn, ReadAhead, hand_out
from footplate.data.saved_state import find_state, has_state, plain_copy
from footplate.data.shares import ALONE, FILL, Ranks, Turn, deal_lists, deal_order, deal_rounds
from footplate.data.stream_watch import snapshot
from footplate.data.tokens import TokenBatches
from footplate.data.worker_reads import mix_seed

logger = logging.getLogger(__name__)

_KEPT = ("order", "length", "start_states", "head")
_DRAWS_ON = (
    "The sampler draws from the global random generators for every batch, between the draws of the model: a "
    "resumed run cannot repeat that and will read other samples than this one. Draw the whole order in "
    "__iter__, or from a generator that the sampler holds, or give it state_dict() and load_state_dict()."
)


class RowPass:
    """The index lists of one pass; drawn once, perhaps far ahead of the batches that are handed out.

    Args:
        batch_sampler: Where index lists come from, or what to cut them by if it is torch's own class.
        start: The state of an earlier pass to go on from.
        keeps_unused: Whether batches count as used at `settle` only, not when they are handed out.
        remembers: Keep the lists, for `given_indices`.
        data: What is read, by name: generators that it holds are not the sampler's.
        ranks: Which of several processes this is; samples are counted over all of them.
    """

    def __init__(
        self,
        batch_sampler: Any,
        start: dict[str, Any] | None = None,
        keeps_unused: bool = False,
        remembers: bool = False,
        data: Mapping[str, Any] | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self._data, self.ranks = data or {}, ranks
        self.batch_sampler: Any = batch_sampler
        self.start = without_batches_of_others(start or {}, ranks)
        self.order = find_order(batch_sampler)
        # what a repetition of this pass would need to know
        self._pass_state = {name: self.start[name] for name in _KEPT if name in self.start}
        self._keeps_unused = keeps_unused
        self._num_samples = self.start.get("num_samples", 0)  # used so far
        self._num_batches = self.start.get("num_batches", 0)
        self._sampler_state: Any = self.start.get("sampler")  # after the last list that was used
        rows_ahead = self.start.get("ahead_rows", ())
        self._first_sample = self._num_samples + sum(rows_ahead)
        weights_ahead = self.start.get("ahead_weights", [1.0] * len(rows_ahead))
        indices_ahead = self.start.get("ahead_indices", [()] * len(rows_ahead))
        # of each list that is drawn and not used: its turn, and the state of the sampler after it
        self._drawn: deque[tuple[Turn, Any]] = deque(
            (Turn(indices, 0, rows, weight=weight), self._sampler_state)
            for indices, rows, weight in zip(indices_ahead, rows_ahead, weights_ahead, strict=True)
        )
        self._num_given = 0  # how many of these were handed out
        self.num_samples_given = self._num_samples
        self.last_turn: Turn | None = None  # of the batch that was handed out last
        self._lists: list[Any] | None = [] if remembers else None
        self._ahead: ReadAhead | None = None  # where this process reads
        self._in_turn: InTurn | None = None  # likewise, in a pass that keeps nothing
        # at once, though no batch may be left to ask for: the sampler must be where the earlier pass left it
        self._source = self._draw() if start is not None else None

    def __iter__(self) -> Iterator[Any]:
        return (turn.rows for turn in self._turns())

    def _turns(self) -> Iterator[Turn]:
        """What this process gets, batch by batch."""
        source = self._draw() if self._source is None else self._source
        dealt = source if self._is_dealt else self._deal(source)
        for turn, sampler_state in dealt:
            self._drawn.append((turn, sampler_state))
            if self._lists is not None:
                self._lists.append(turn.rows[: turn.num_own])
            yield turn

    def _deal(self, lists: Iterator[tuple[Any, Any]]) -> Iterator[tuple[Turn, Any]]:
        """The turns of this process, each with the state of the sampler after its round."""
        if self.ranks.count == 1:
            return ((Turn(rows, len(rows), len(rows)), state) for rows, state in lists)
        size: int | None = getattr(self.batch_sampler, "batch_size", None)
        drop_last = bool(getattr(self.batch_sampler, "drop_last", False))
        if self.ranks.ending == FILL and not drop_last:
            lists = self._keep_head(lists)
        return deal_lists(lists, self.ranks, size, drop_last, self._pass_state.get("head", ()))

    def _keep_head(self, lists: Iterator[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        """Keep the rows that a pass begins with: those of a sampler cannot be drawn again at its end."""
        if self._first_sample == 0:
            first = list(islice(lists, self.ranks.count))
            rows = [int(row) if hasattr(row, "__index__") else row for part, _ in first for row in part]
            self._pass_state["head"] = rows
            lists = chain(first, lists)
        return lists

    def read_here(self, read: Callable[[Any], Any]) -> ReadAhead | InTurn:
        """The batches that `read` makes of the lists, in this process."""
        if not self._keeps_unused and not self.start:
            self._in_turn = InTurn(map(read, self), self._note_used)
            return self._in_turn
        self._ahead = ReadAhead(map(read, self), self._note_given, self._keeps_unused, self.start)
        return self._ahead

    def requests(self, seed: int) -> Iterator[tuple[int, Any]]:
        """The lists for workers, each with the seed of its position."""
        position = self._first_sample
        for turn in self._turns():
            yield mix_seed(seed, position + turn.offset), turn.rows
            position += turn.num_round

    def count(self, batches: Iterator[Any], is_ahead: bool = False) -> Iterator[Any]:
        """The batches that others read of these lists, after those that an earlier pass had read.

        Args:
            batches: What the others read.
            is_ahead: Take each from them before the one in front of it is handed out.
        """
        return hand_out(chain(self.start.get("ahead", ()), batches), self._note_given, is_ahead)

    def _note_given(self) -> None:
        """The batch of the next list was handed out."""
        self.last_turn = turn = self._drawn[self._num_given][0]
        self.num_samples_given += turn.num_round
        self._num_given += 1
        if not self._keeps_unused:
            self.settle()

    def _note_used(self) -> None:
        """The same in a pass that keeps nothing: the batch counts as used."""
        self.last_turn, self._sampler_state = turn, _ = self._drawn.popleft()
        self.num_samples_given += turn.num_round
        self._num_samples += turn.num_round
        self._num_batches += 1

    def settle(self) -> None:
        """An update was made of all that was handed out."""
        for _ in range(self._num_given):
            turn, self._sampler_state = self._drawn.popleft()
            self._num_samples += turn.num_round
            self._num_batches += 1
        self._num_given = 0
        if self._ahead is not None and self._keeps_unused:
            self._ahead.settle()

    @property
    def samples_used(self) -> int:
        """Samples that finished updates have used, over all processes."""
        return int(self._num_samples)

    def rewind(self) -> None:
        """Forget what was read since the last finished update: another process reads it again."""
        if self._ahead is not None:
            self._ahead.rewind()

    def given_indices(self) -> list[int]:
        """The rows handed out so far, in their order."""
        lists = self._lists or []
        num_given = len(lists) - len(self._drawn) + self._num_given  # the others were read ahead
        return [int(index) for index in chain.from_iterable(lists[:num_given])]

    def given_weights(self) -> list[float]:
        """Of each batch since the last `settle`: what its loss is multiplied by."""
        return [turn.weight for turn, _ in islice(self._drawn, self._num_given)]

    def rows_under_way(self) -> list[list[Any]]:
        """The rows of each batch since the last `settle`; a list is empty where nobody knows them."""
        return [list(turn.rows) for turn, _ in islice(self._drawn, self._num_given)]

    def state(self) -> dict[str, Any]:
        """How far the pass got, counting what was used and not what was drawn ahead."""
        if self.start and self._num_samples == self.start["num_samples"]:
            return self.start  # nothing was used since
        state = {"num_samples": self._num_samples, "num_batches": self._num_batches, **self._pass_state}
        reader = self._ahead or self._in_turn
        state.update(reader.state() if reader is not None else {})
        sampler_state = self._sampler_state
        if "ahead" in state:
            drawn = list(islice(self._drawn, len(state["ahead"])))
            state["ahead_rows"], sampler_state = [turn.num_round for turn, _ in drawn], drawn[-1][1]
            state["ahead_indices"] = [_plain_rows(turn.rows) for turn, _ in drawn]
            if self.ranks.count > 1:
                state["ahead_weights"] = [turn.weight for turn, _ in drawn]
        if self.ranks.count > 1:
            state["ranks"] = [self.ranks.rank, self.ranks.count]
        return state if sampler_state is None else {**state, "sampler": sampler_state}

    @property
    def _is_dealt(self) -> bool:
        """Whether an order is cut for this rank alone, instead of dealing out the lists of all."""
        is_one = self.ranks.count == 1 and not isinstance(self.batch_sampler, TokenBatches)
        return self.order is not None and not is_one

    def _draw(self) -> Iterator[tuple[Any, Any]]:
        """Index lists, or turns, from the start on, and the state of a sampler that has one after each."""
        if self.order is not None and self._is_dealt:
            return self._deal_order(self.order)
        if self.order is not None:
            return zip(self._cut_order(self.order), repeat(None))
        stateful = _find_stateful(self.batch_sampler)
        if stateful is None:
            return zip(self._replay(), repeat(None))
        if "sampler" in self.start:
            stateful.load_state_dict(plain_copy(self.start["sampler"]))
            # a sampler at its end may begin the next epoch when it is asked again
            is_over = self._first_sample == find_length(getattr(self.batch_sampler, "sampler", None))
            lists = iter(()) if is_over else self._all_lists()
        else:
            lists = self._lists_after(self._first_sample)
        return ((indices, find_state(stateful)) for indices in lists)

    def _cut_order(self, order: SampleOrder) -> Iterator[list[int]]:
        """Slices of the plan; nothing before the start is looked at."""
        settings = {**order.settings(), **self.start.get("order", {})}
        self._pass_state = {"order": settings, "length": len(order)}
        order.seek(self._first_sample, settings)
        return cut_batches(order.draw(), self.batch_sampler.batch_size, self.batch_sampler.drop_last)

    def _deal_order(self, order: SampleOrder) -> Iterator[tuple[Turn, None]]:
        """The slices of this rank; a last round may be filled up with the rows that the epoch begins with."""
        settings = {**order.settings(), **self.start.get("order", {})}
        self._pass_state = {"order": settings, "length": len(order)}
        order.check_position(self._first_sample)
        sampler = self.batch_sampler
        if isinstance(sampler, TokenBatches):
            order.seek(self._first_sample, settings)
            return deal_rounds(sampler.sampler.draw_rounds(), self.ranks)
        order.seek(0, settings)
        return deal_order(
            order.draw(), self._first_sample, self.ranks, sampler.batch_size, bool(sampler.drop_last)
        )

    def _replay(self) -> Iterator[Any]:
        """The lists of a sampler that only knows how to start over, on the numbers that it first drew from.

        What it draws when a pass starts comes out the same, and so does what it draws later from generators
        that it holds. One that goes on to draw from the global generators needs a `state_dict`.
        """
        is_fixed = type(getattr(self.batch_sampler, "sampler", None)) is SequentialSampler
        if is_fixed:
            return self._lists_after(self._first_sample)
        own = HeldGenerators()
        own.search(sampler=self.batch_sampler, without=HeldGenerators(**self._data))
        saved = self.start.get("start_states")
        if saved is None:
            saved = rng.to_plain({**rng.capture(), "own": own.capture()})
        self._pass_state["start_states"] = saved
        if isinstance(saved.get("own"), Mapping):
            own.restore(saved["own"])
        if self._first_sample == 0:
            return _watched(self._all_lists()) if self._keeps_unused else self._all_lists()
        with rng.scoped(states=saved):
            return self._lists_after(self._first_sample)

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


def _plain_rows(rows: Any) -> list[int]:
    """Row numbers as a checkpoint holds them; empty if a sampler gives something else."""
    return [int(row) for row in rows] if all(hasattr(row, "__index__") for row in rows) else []


def without_batches_of_others(state: dict[str, Any], ranks: Ranks) -> dict[str, Any]:
    """A state without the batches in it, if another process or number of processes had read them."""
    if list(state.get("ranks", (0, 1))) == [ranks.rank, ranks.count]:
        return state
    return {name: value for name, value in state.items() if not name.startswith("ahead")}


class Requests:
    """The batch sampler of workers that may outlive a pass: the requests of the current one."""

    current: Iterator[tuple[int, Any]]

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        return self.current


def find_order(batch_sampler: Any) -> SampleOrder | None:
    """The order that is cut into batches, if it is one that can be sought in."""
    if type(batch_sampler) not in (BatchSampler, TokenBatches):  # others may arrange batches as they like
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


def _find_stateful(batch_sampler: Any) -> Any:
    """The batch sampler or the sampler in it, whichever can be put back into a state."""
    candidates = (batch_sampler, getattr(batch_sampler, "sampler", None))
    return next((sampler for sampler in candidates if has_state(sampler)), None)


def _watched(lists: Iterator[Any]) -> Iterator[Any]:
    """The lists, and a warning if the second one is drawn from the global generators.

    The first may be: many samplers draw the whole order then, and that is repeated on resume.
    """
    yield from islice(lists, 1)
    before = snapshot()
    for indices in lists:
        if snapshot() != before:
            logger.warning(_DRAWS_ON)
        yield indices
        break
    yield from lists
