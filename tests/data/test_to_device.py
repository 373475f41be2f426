"""Batches on their way to a device, on the CPU: torch gives it streams that do nothing, in the same names."""

from __future__ import annotations

import logging
from itertools import chain

import pytest
import torch
from accelerate.state import GradientState

from footplate import rng
from footplate.data.loader import Loader
from footplate.data.order import RandomOrder
from footplate.data.read_ahead import ReadAhead
from footplate.data.shares import FILL, Ranks
from footplate.data.to_device import Moved, Prefetched, can_prefetch, copy_stream
from footplate.data.turns import WithTurns
from numbered import (
    ManyAtOnce,
    Noisy,
    Numbers,
    SizedStream,
    Stream,
    contents,
    generator_states,
    ids,
    random_collate,
)

CPU = torch.device("cpu")


class Graph:
    """A batch of a type of its own, as graph libraries have them."""

    def __init__(self, number, log):
        self.number, self.log = number, log

    def to(self, device):
        is_ahead = torch.cpu.current_stream() is copy_stream(CPU)
        self.log.append(f"copy {self.number} {'ahead' if is_ahead else 'now'}")
        return self


def prefetch(batches):
    return Prefetched(ReadAhead(iter(batches), lambda: None), CPU)


def test_a_batch_is_copied_before_the_one_in_front_of_it_is_used():
    log = []
    for graph in prefetch([Graph(number, log) for number in range(3)]):
        log.append(f"use {graph.number}")
    assert log == ["copy 0 now", "copy 1 ahead", "use 0", "copy 2 ahead", "use 1", "use 2"]


def test_copies_wait_for_earlier_work_and_work_for_its_copy(monkeypatch):
    log = []

    def wait_stream(stream, other):
        names = {copy_stream(CPU): "copies", torch.cpu.current_stream(): "work"}
        log.append(f"{names[stream]} wait for {names[other]}")

    monkeypatch.setattr(torch.cpu.Stream, "wait_stream", wait_stream)
    for graph in prefetch([Graph(number, log) for number in range(2)]):
        log.append(f"use {graph.number}")
    assert log == [
        *("copy 0 now", "copies wait for work", "copy 1 ahead", "use 0"),
        *("work wait for copies", "use 1"),
    ]


def test_at_most_one_batch_is_copied_ahead():
    log = []
    batches = prefetch([Graph(number, log) for number in range(9)])
    next(batches)
    next(batches)
    assert log[-1] == "copy 2 ahead"


def test_batches_without_tensors_and_empty_passes_come_as_they_are():
    assert list(prefetch([None, "text", [1, 2], {"x": None}])) == [None, "text", [1, 2], {"x": None}]
    assert list(prefetch([])) == []


def test_a_batch_that_does_not_fit_beside_the_one_in_use_is_moved_when_it_is_asked_for():
    class Large(Graph):
        def to(self, device):
            super().to(device)
            if "ahead" in self.log[-1]:
                raise torch.OutOfMemoryError("no room")
            return self

    log = []
    assert [graph.number for graph in prefetch([Large(number, log) for number in range(3)])] == [0, 1, 2]
    assert log[-3:] == ["copy 1 now", "copy 2 ahead", "copy 2 now"]


def test_it_knows_which_batch_is_the_last():
    batches = prefetch([{"x": torch.zeros(1)}] * 3)
    assert [batches.is_last for _ in batches] == [False, False, True]


def test_taking_entries_out_of_a_batch_leaves_the_one_that_was_read():
    source = [{"x": torch.zeros(1), "y": torch.ones(1)} for _ in range(2)]
    for batch in prefetch(source):
        batch.pop("y")
    assert [sorted(batch) for batch in source] == [["x", "y"]] * 2


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    "dataset",
    [Numbers(), ManyAtOnce(), Noisy(), Stream(), SizedStream()],
    ids=lambda data: type(data).__name__,
)
def test_batches_and_random_states_are_those_of_a_loader_that_does_not_prefetch(dataset, num_workers):
    results = []
    for is_wanted in (False, True):
        rng.seed_all(0)
        order = None if isinstance(dataset, Stream) else RandomOrder(23, 1)
        loader = Loader(
            dataset,
            batch_size=4,
            sampler=order,
            num_workers=num_workers,
            is_training=True,
            collate_fn=random_collate,
            device=CPU,
            prefetch=is_wanted,
        )
        results.append([(contents([batch]), generator_states()) for _ in range(2) for batch in loader])
        assert loader.prefetches is is_wanted
    assert repr(results[0]) == repr(results[1])


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("dataset", [Numbers(), Stream()], ids=lambda data: type(data).__name__)
def test_only_batches_that_were_handed_out_count(dataset, num_workers):
    order = None if isinstance(dataset, Stream) else RandomOrder(23, 1)
    settings = {"batch_size": 4, "sampler": order, "num_workers": num_workers, "is_training": True}
    loader = Loader(dataset, device=CPU, prefetch=True, **settings)
    loader.keeps_unused = True
    batches = iter(loader)
    first = ids([next(batches) for _ in range(2)])
    loader.settle()
    next(batches)  # no update is made of it
    assert loader.samples_done == 8
    state = loader.state_dict()
    resumed = Loader(dataset, device=CPU, prefetch=False, **settings)
    resumed.load_state_dict(state)
    rest = ids(resumed)
    assert sorted(chain.from_iterable(first + rest)) == list(range(23))
    assert len(rest) == 4


@pytest.mark.parametrize("num_workers", [0, 1])
def test_accelerate_is_told_of_the_end_of_an_evaluation_as_without(num_workers):
    told = []
    for is_wanted in (False, True):
        loader = Loader(
            Numbers(),
            batch_size=4,
            num_workers=num_workers,
            ranks=Ranks(1, 2, FILL),
            device=CPU,
            prefetch=is_wanted,
        )
        loader.gradient_state = GradientState()
        items = WithTurns(loader)
        facts = [(ids([batch]), turn, loader.end_of_dataloader, loader.remainder) for batch, turn in items]
        told.append((facts, loader.gradient_state.in_dataloader))
    assert told[0] == told[1]
    assert told[0][0][-1][2:] == (True, 7)


def test_lists_of_a_sampler_of_the_users_own_are_not_drawn_earlier_for_workers():
    loader = Loader(Numbers(), batch_size=4, sampler=[1, 2, 3], num_workers=1, device=CPU, prefetch=True)
    assert not isinstance(iter(loader), Moved)
    assert ids(loader) == [[1, 2, 3]]


def test_unset_means_every_device_that_has_streams_but_the_cpu():
    assert not can_prefetch(CPU, None)
    assert can_prefetch(CPU, True)
    assert not can_prefetch(None, True)
    assert can_prefetch(torch.device("cuda"), None)
    assert not can_prefetch(torch.device("cuda"), False)
    assert not can_prefetch(torch.device("mps"), None)


def test_a_device_without_streams_is_named(caplog):
    with caplog.at_level(logging.WARNING):
        assert not can_prefetch(torch.device("mps"), True)
    assert "dataloader_prefetch_to_device=True: no effect on a device of type 'mps'" in caplog.text
