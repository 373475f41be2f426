"""A thousand ranks in one process, without communication: what they read together is one epoch."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

import pytest
from torch.utils.data import BatchSampler, IterableDataset

from footplate.data.keyed import KeyedOrder
from footplate.data.order import RandomOrder, SampleOrder
from footplate.data.row_pass import RowPass
from footplate.data.shares import DIVIDE, FILL, Ranks, Turn
from footplate.data.stream_pass import StreamPass
from footplate.data.stream_reader import StreamSettings

NUM_RANKS, NUM_RANKS_RESUMED = 1024, 768
BATCH_SIZE, NUM_ROUNDS = 3, 2
ROUND = NUM_RANKS * BATCH_SIZE
NUM_ROWS = NUM_ROUNDS * ROUND + 1001  # the last round is not full: some ranks get nothing of it
CASES = [("random", FILL), ("random", DIVIDE), ("keyed", FILL), ("stream", FILL), ("stream", DIVIDE)]


class Numbers(IterableDataset):
    """A stream that can only be read from its beginning."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(NUM_ROWS))


class Batch(NamedTuple):
    rows: list[int]
    turn: Turn

    @property
    def own(self) -> list[int]:
        """The rows that count on this rank: the others fill up."""
        return self.rows[: self.turn.num_own]


class Pass(NamedTuple):
    """What one rank reads, and the state that it leaves."""

    batches: list[Batch]
    state: dict[str, Any]

    @property
    def num_rows(self) -> int:
        return sum(len(batch.rows) for batch in self.batches)


class FixedOrder(SampleOrder):
    """An order that all simulated ranks share, so that it is drawn once and not a thousand times."""

    def __init__(self, order: SampleOrder, epoch: int) -> None:
        super().__init__(len(order), order.seed)
        self.drawn = list(order.indices(epoch))

    def indices(self, epoch: int) -> list[int]:
        return self.drawn


RANDOM = FixedOrder(RandomOrder(NUM_ROWS, seed=5), epoch=0)
WHOLE = {
    "random": list(RandomOrder(NUM_ROWS, seed=5)),
    "keyed": list(KeyedOrder(NUM_ROWS, seed=5)),
    "stream": list(range(NUM_ROWS)),
}


def read(kind: str, ranks: Ranks, start: dict[str, Any] | None = None, num_batches: int = -1) -> Pass:
    """What the rank reads from `start` on, all of it or so many batches."""
    if kind == "stream":
        settings = StreamSettings(
            Numbers(), BATCH_SIZE, False, list, seed=1, shows_progress=False, ranks=ranks
        )
        one_pass: Any = StreamPass(settings, 0, start)
        source = one_pass.read_here()
    else:
        order = RANDOM if kind == "random" else KeyedOrder(NUM_ROWS, seed=5)
        one_pass = RowPass(BatchSampler(order, BATCH_SIZE, False), start, ranks=ranks)
        source = one_pass.read_here(list)
    batches = []
    while len(batches) != num_batches and (rows := next(source, None)) is not None:
        batches.append(Batch(rows, one_pass.last_turn))
    return Pass(batches, one_pass.state())


def read_all(kind: str, count: int, ending: str, start: dict[str, Any] | None = None) -> list[Pass]:
    return [read(kind, Ranks(rank, count, ending), start) for rank in range(count)]


def in_turn(passes: list[Pass]) -> list[int]:
    """The rows that count, in rounds and in the order of the ranks."""
    rounds = zip(*(one.batches for one in passes), strict=True)  # every rank has as many batches
    return [*chain.from_iterable(batch.own for round_ in rounds for batch in round_)]


def filled_with(passes: list[Pass]) -> list[int]:
    """The rows that do not count; only the last batch of a rank may have some."""
    assert all(batch.own == batch.rows for one in passes for batch in one.batches[:-1])
    return [row for one in passes for row in one.batches[-1].rows[one.batches[-1].turn.num_own :]]


def assert_fair(passes: list[Pass], ending: str) -> None:
    """Ranks read equally much, and together their losses weigh as much as their rows."""
    sizes = [one.num_rows for one in passes]
    assert max(sizes) - min(sizes) <= (0 if ending == FILL else BATCH_SIZE)
    last = [one.batches[-1] for one in passes]
    if ending == FILL:
        assert {batch.turn.weight for batch in last} == {1.0}
    else:  # a rank without a row of its own reads one that does not count: its loss has no weight
        assert len(filled_with(passes)) == sum(batch.turn.num_own == 0 for batch in last)
        assert sum(batch.turn.weight for batch in last) == pytest.approx(len(passes))
        assert all((batch.turn.weight > 0) is (batch.turn.num_own > 0) for batch in last)


@pytest.mark.parametrize(
    ("kind", "ending"),
    [case if case[0] != "keyed" else pytest.param(*case, marks=pytest.mark.slow) for case in CASES],
)
def test_a_thousand_ranks_together_read_one_epoch_in_its_order(kind, ending):
    passes = read_all(kind, NUM_RANKS, ending)
    assert Counter(in_turn(passes)) == Counter(range(NUM_ROWS))  # disjoint and complete
    assert in_turn(passes) == WHOLE[kind]
    assert_fair(passes, ending)
    if ending == FILL:
        assert set(filled_with(passes)) <= set(WHOLE[kind][:ROUND])
    assert {one.state["num_samples"] for one in passes} == {NUM_ROWS}


def stopped_twice(kind: str, ending: str) -> dict[str, Any]:
    """The state of any rank of 1,024 that are stopped, and of some other number that go on for one batch."""
    draw = random.Random(f"{kind} {ending}")
    state = read(kind, Ranks(draw.randrange(NUM_RANKS), NUM_RANKS, ending), num_batches=1).state
    assert state["num_samples"] == ROUND
    count = draw.randrange(500, 900)
    state = read(kind, Ranks(draw.randrange(count), count, ending), state, num_batches=1).state
    assert state["num_samples"] == ROUND + count * BATCH_SIZE
    return state


@pytest.mark.parametrize(("kind", "ending"), CASES)
def test_fewer_ranks_resume_anywhere_and_read_exactly_the_rest(kind, ending, caplog):
    caplog.set_level(logging.ERROR)  # each rank of a stream says that it reads past samples
    state = stopped_twice(kind, ending)
    passes = read_all(kind, NUM_RANKS_RESUMED, ending, state)
    rest = in_turn(passes)
    assert rest == WHOLE[kind][state["num_samples"] :]
    assert len(set(rest)) == len(rest)
    assert_fair(passes, ending)
    if ending == FILL and kind != "stream":
        assert set(filled_with(passes)) <= set(WHOLE[kind][: NUM_RANKS_RESUMED * BATCH_SIZE])


def test_a_stream_that_is_resumed_is_filled_from_its_start_too(caplog):
    caplog.set_level(logging.ERROR)
    passes = read_all("stream", NUM_RANKS_RESUMED, FILL, stopped_twice("stream", FILL))
    assert set(filled_with(passes)) <= set(WHOLE["stream"][: NUM_RANKS_RESUMED * BATCH_SIZE])
