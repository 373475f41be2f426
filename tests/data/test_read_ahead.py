"""One batch is always read ahead, and another process can read it again as it was."""

from __future__ import annotations

import pytest
import torch

from footplate import rng
from footplate.data.read_ahead import InTurn, ReadAhead
from numbered import generator_states, noise


def build(log, count=3, kind=ReadAhead, **settings):
    def read():
        for index in range(count):
            log.append(f"read {index}")
            yield index, noise()

    return kind(read(), lambda: log.append("given"), **settings)


BOTH = pytest.mark.parametrize("kind", [ReadAhead, InTurn])


@BOTH
def test_a_batch_is_handed_out_after_the_next_was_read(kind):
    log = []
    for index, _ in build(log, kind=kind):
        log.append(f"use {index}")
    assert log == [
        *("read 0", "read 1", "given", "use 0"),
        *("read 2", "given", "use 1"),
        *("given", "use 2"),
    ]


@BOTH
def test_the_last_batch_is_known_as_such(kind):
    batches = build([], kind=kind)
    assert [batches.is_last for _ in batches] == [False, False, True]
    assert [*build([], count=0, kind=kind)] == []
    with pytest.raises(StopIteration):
        next(batches)


def test_the_state_of_a_pass_that_keeps_nothing_has_the_batch_that_was_read_ahead():
    batches = build([], kind=InTurn)
    assert batches.state() == {}
    next(batches)
    ((index, _),) = batches.state()["ahead"]
    assert index == 1
    next(batches), next(batches)
    assert batches.state() == {}


def test_the_waiting_batch_is_part_of_the_state_and_given_first():
    rng.seed_all(3)
    first = build([], keeps_unused=True)
    next(first)
    first.settle()
    state, after = first.state(), rng.capture()
    rest = [*first, noise()]
    first.settle()
    assert first.state() == {}  # nothing waits after the last

    rng.seed_all(9)  # another process, which has only the third batch left to read
    log = []
    second = build(log, count=1, keeps_unused=True, start=state)
    assert second.state() == state  # also before anything was handed out
    rng.restore(after)
    repeated = [*second, noise()]
    assert repeated[0] == rest[0]
    assert repeated[1][1] == rest[1][1]  # the draws of the third batch
    assert repeated[-1] == rest[-1]
    assert log == ["read 0", "given", "given"]


def test_all_batches_of_an_unfinished_update_are_given_again_without_a_read():
    first = build([], count=5, keeps_unused=True)
    given = [next(first)[0] for _ in range(3)]
    state = first.state()
    assert [batch[0] for batch in state["ahead"]] == [*given, 3]
    log = []
    second = build(log, count=1, start=state)
    assert [next(second)[0] for _ in range(3)] == given
    assert "read 0" not in log


def test_what_was_read_since_the_last_update_can_be_forgotten():
    batches = build([], count=5, keeps_unused=True)
    next(batches)
    batches.settle()
    state = batches.state()
    next(batches), next(batches)
    batches.rewind()
    assert batches.state() == state


class Opaque:
    """What the safe loader of a checkpoint would not read back."""


def test_a_batch_that_cannot_be_stored_is_read_again_as_it_was():
    def read():
        for _ in range(4):
            yield [Opaque(), noise()]

    rng.seed_all(3)
    places = iter("abcd")
    first = ReadAhead(read(), list, keeps_unused=True, find_place=lambda: next(places))
    next(first)
    first.settle()
    next(first)  # of an update that is not finished
    state, after = first.state(), rng.capture()
    assert len(state["ahead_states"]) == 2
    assert first.place == "b"
    expected = [batch[1] for batch in (first._unused[0].batch, first._unused[1].batch)]

    rng.seed_all(9)
    second = ReadAhead(read(), list, keeps_unused=True, start=state)
    assert len(second.state()["ahead_states"]) == 2
    rng.restore(after)
    before = generator_states()
    assert next(second)[1] == expected[0]
    assert generator_states() == before
    assert next(second)[1] == expected[1]


def test_a_batch_that_was_changed_outside_keeps_what_the_checkpoint_needs():
    batches = ReadAhead(iter([{"x": torch.zeros(2)}, {"x": torch.ones(2)}]), list, keeps_unused=True)
    batch = next(batches)
    batch.pop("x")
    assert list(batches.state()["ahead"][0]) == ["x"]


def test_a_batch_that_was_changed_in_place_is_named(caplog):
    batches = ReadAhead(iter([{"x": torch.zeros(2)}, {"x": torch.ones(2)}]), list, keeps_unused=True)
    next(batches)["x"].add_(5)
    assert batches.state() == {}
    assert "changed in place" in caplog.text


def test_a_batch_of_other_types_than_the_first_is_named(caplog):
    batches = ReadAhead(iter([1, 2, Opaque(), Opaque()]), list, keeps_unused=True)
    next(batches), next(batches)
    batches.settle()
    assert batches.state() == {}
    assert "other types than the first one" in caplog.text
    next(batches)
    batches.settle()
    assert list(batches.state()) == ["ahead_states"]  # from here on


def test_an_evaluation_keeps_no_batch():
    batches = build([], count=5)
    next(batches), next(batches)
    assert len(batches._unused) == 1  # the one that waits


def test_a_read_that_fails_leaves_what_is_known_of_the_waiting_batch():
    def read():
        yield 0
        yield 1
        raise KeyError("row 2")

    batches = ReadAhead(read(), list, keeps_unused=True)
    next(batches)
    batches.settle()
    with pytest.raises(KeyError, match="row 2"):
        next(batches)
    assert batches.state() == {"ahead": [1]}
