"""The keyed order: every index once, computed at any position, as random as torch's permutation."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny
from footplate import Trainer, TrainerCallback
from footplate.data.keyed import BLOCK_SIZE, MAX_GAP, KeyedOrder
from footplate.data.order import RandomOrder, SampleOrder
from footplate.data.row_pass import cut_batches

BILLION = 10**9
NUM_BINS, NUM_SEEDS = 32, 16
near_powers_of_two = st.builds(
    lambda power, shift: max(2**power + shift, 1), st.integers(0, 14), st.integers(-2, 2)
)


# ---- every index once ----


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.integers(1, 5000) | near_powers_of_two, st.integers(0, 2**32 - 1), st.integers(0, 50))
def test_every_index_comes_exactly_once_at_any_size(num_rows, seed, epoch):
    assert sorted(KeyedOrder(num_rows, seed).indices(epoch)) == list(range(num_rows))


def test_a_whole_epoch_of_a_million_rows_has_every_index_once():
    indices = np.fromiter(KeyedOrder(10**6, seed=3).indices(1), np.int64)
    assert np.array_equal(np.sort(indices), np.arange(10**6))


def test_no_rows_give_no_indices():
    assert list(KeyedOrder(0).indices(0)) == []
    assert list(KeyedOrder(5).indices(0)[5:]) == []


# ---- any position at once ----


WHOLE = list(KeyedOrder(3 * BLOCK_SIZE + 5, seed=1).indices(0))
slices = st.lists(st.slices(len(WHOLE)), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(slices, st.integers(0, len(WHOLE) - 1))
def test_a_slice_gives_the_same_indices_whatever_was_read_before(cuts, place):
    indices = KeyedOrder(len(WHOLE), seed=1).indices(0)
    for cut in cuts:
        assert list(indices[cut]) == WHOLE[cut]
        assert list(indices[cut][1:7]) == WHOLE[cut][1:7]
    assert indices[place] == indices[place - len(WHOLE)] == WHOLE[place]


@pytest.mark.parametrize("gap", [0, 3, MAX_GAP - 1, MAX_GAP, 2 * MAX_GAP])
@pytest.mark.parametrize("batch_size", [1, 8, BLOCK_SIZE + 1])
def test_batches_with_gaps_between_them_are_those_of_the_whole(batch_size, gap):
    indices = KeyedOrder(len(WHOLE), seed=1).indices(0)
    for start in range(0, len(WHOLE), batch_size + gap):
        assert list(indices[start : start + batch_size]) == WHOLE[start : start + batch_size]


def test_indices_are_plain_numbers_and_places_outside_are_refused():
    indices = KeyedOrder(10).indices(0)
    assert {type(index) for index in indices} == {int}
    assert type(indices[3]) is int
    assert type(indices[np.int64(3)]) is int
    assert len(indices[2:]) == 8
    with pytest.raises(IndexError):
        indices[10]


def test_batches_after_a_seek_are_the_rest_of_the_epoch():
    order = KeyedOrder(1003, seed=4)
    whole = list(order)
    order.seek(600)
    assert [*itertools.chain.from_iterable(cut_batches(order.draw(), 8, False))] == whole[600:]
    assert list(order) == whole


IN_A_BILLION = """
import re, time
from footplate.data.keyed import KeyedOrder
from footplate.data.row_pass import cut_batches


def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])

list(cut_batches(KeyedOrder(100).indices(0), 8, False))  # what numpy loads when it is first used
before = peak()
start = time.perf_counter()
order = KeyedOrder(10**9, seed=42)
order.set_epoch(1)
order.seek(9 * 10**8)
batches = cut_batches(order.draw(), 8, False)
first = next(batches)
seconds = time.perf_counter() - start
for _ in range(5000):
    next(batches)
print(seconds, peak() - before, *first)
"""


def test_ninety_percent_into_a_billion_rows_the_first_batch_comes_at_once_and_without_memory():
    done = subprocess.run([sys.executable, "-c", IN_A_BILLION], capture_output=True, text=True, check=True)
    seconds, num_bytes, *first = done.stdout.split()
    assert float(seconds) < 0.05
    assert int(num_bytes) < 50e6
    indices = KeyedOrder(BILLION, seed=42).indices(1)
    assert [int(index) for index in first] == list(indices[9 * 10**8 :][:8])
    assert indices[-1] == indices[BILLION - 1] < BILLION


def test_a_batch_costs_little_when_batches_follow_each_other():
    batches = cut_batches(KeyedOrder(BILLION).indices(0), 8, False)
    next(batches)
    start = time.process_time()
    for _ in range(5000):
        next(batches)
    assert (time.process_time() - start) / 5000 < 60e-6


# ---- as random as torch's permutation ----


def neighbours(indices: np.ndarray) -> float:
    """Chi-square of the steps from one index to the next, round the end, in equal bins."""
    num_rows = len(indices)
    steps = np.diff(indices) % num_rows
    return chi_square(np.bincount(steps * NUM_BINS**2 // num_rows, minlength=NUM_BINS**2))


def places(indices: np.ndarray) -> float:
    """Chi-square of where in the epoch an index comes, in a table of equal bins."""
    num_rows = len(indices)
    cells = np.arange(num_rows) * NUM_BINS // num_rows * NUM_BINS + indices * NUM_BINS // num_rows
    return chi_square(np.bincount(cells, minlength=NUM_BINS**2))


def pairs(indices: np.ndarray) -> float:
    """Chi-square of an index and the next one, in a table of equal bins."""
    binned = indices * NUM_BINS // len(indices)
    return chi_square(np.bincount(binned[:-1] * NUM_BINS + binned[1:], minlength=NUM_BINS**2))


def chi_square(counts: np.ndarray) -> float:
    return float(((counts - counts.mean()) ** 2 / counts.mean()).sum())


@cache
def shuffled(order: type[SampleOrder], num_rows: int) -> list[np.ndarray]:
    """The first epochs of some seeds."""
    return [np.fromiter(order(num_rows, seed).indices(0), np.int64) for seed in range(NUM_SEEDS)]


@pytest.mark.parametrize("num_rows", [4096, 10_007, 100_000])
@pytest.mark.parametrize("measure", [neighbours, places, pairs])
def test_the_order_is_no_less_random_than_torchs_permutation(measure, num_rows):
    ours = np.array([measure(indices) for indices in shuffled(KeyedOrder, num_rows)])
    theirs = np.array([measure(indices) for indices in shuffled(RandomOrder, num_rows)])
    error = np.sqrt((ours.var() + theirs.var()) / NUM_SEEDS)
    assert ours.mean() < theirs.mean() + 3 * error
    assert ours.max() < theirs.max() + 2 * theirs.std()


@pytest.mark.parametrize("num_rows", [2, 3, 4])
def test_few_rows_come_in_every_order_equally_often(num_rows):
    orders = list(itertools.permutations(range(num_rows)))
    drawn = [tuple(KeyedOrder(num_rows, seed=1).indices(epoch)) for epoch in range(100 * len(orders))]
    counts = np.array([drawn.count(order) for order in orders])
    degrees = len(orders) - 1
    assert chi_square(counts) < degrees + 4 * np.sqrt(2 * degrees)


def test_neighbours_of_few_rows_are_random_too():
    """Over many epochs: one epoch of so few rows shows little."""
    for num_rows in (16, 100):
        steps = [np.diff(list(KeyedOrder(num_rows).indices(epoch))) % num_rows for epoch in range(300)]
        counts = np.bincount(np.concatenate(steps), minlength=num_rows)[1:]
        degrees = num_rows - 2
        assert chi_square(counts) < degrees + 4 * np.sqrt(2 * degrees)


def test_seeds_and_epochs_give_orders_of_their_own():
    keys = [(seed, epoch) for seed in (*range(6), 2**32, 2**32 + 1, -1) for epoch in range(6)]
    orders = {tuple(KeyedOrder(1000, seed).indices(epoch)) for seed, epoch in keys}
    assert len(orders) == len(keys)  # torch's has epoch 1 of seed 0 for epoch 0 of seed 1
    first, second = (np.array(KeyedOrder(10_000).indices(epoch)) for epoch in (0, 1))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.03
    assert (first == second).sum() < 10


def test_the_order_of_a_seed_never_changes():
    """A resumed run goes on in the order that an earlier version began."""
    assert list(KeyedOrder(10, seed=42).indices(0)) == [6, 3, 7, 9, 4, 0, 1, 5, 8, 2]
    far = KeyedOrder(BILLION, seed=42).indices(3)[900_000_000:900_000_003]
    assert list(far) == [700862739, 952436301, 977665229]


def test_nothing_is_drawn_from_the_global_generators():
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    list(KeyedOrder(100).indices(0))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])


# ---- a run ----


class Recorder(Trainer):
    """Notes which rows went into the updates."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.seen: list[int] = []
        super().__init__(*args, **kwargs)

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        self.seen += inputs["id"].tolist()
        return super().training_step(model, inputs, num_items_in_batch)


class StopAt(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_save = control.should_training_stop = state.global_step == self.step


def build(folder: Path, *callbacks: TrainerCallback) -> Recorder:
    rows = [{**row, "id": index} for index, row in enumerate(tiny.regression_data(61))]
    arguments = tiny.arguments(
        folder,
        train_sampling_strategy="keyed",
        num_train_epochs=2,
        per_device_train_batch_size=4,
        seed=7,
        keep_columns=["id"],
    )
    return Recorder(tiny.Regression(), arguments, train_dataset=rows, callbacks=list(callbacks))


@pytest.mark.parametrize(("stop", "num_seen"), [(5, 20), (16, 61), (23, 89)])  # an epoch has 16 updates
def test_a_keyed_run_resumes_exactly(tmp_path, stop, num_seen):
    straight = build(tmp_path / "straight")
    straight.train()
    order = KeyedOrder(61, seed=7)
    assert straight.seen == [*order.indices(0), *order.indices(1)]

    cut = build(tmp_path / "cut", StopAt(stop))
    cut.train()
    resumed = build(tmp_path / "cut")
    resumed.train(resume_from_checkpoint=True)
    assert len(cut.seen) == num_seen
    assert cut.seen + resumed.seen == straight.seen
    for name, value in straight.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name])


def test_a_pass_can_follow_the_seed_that_it_began_with():
    begun = KeyedOrder(61, seed=7)
    changed = KeyedOrder(61, seed=8)
    changed.seek(20, begun.settings())
    assert list(changed) == list(begun)[20:]
    assert list(changed) == list(KeyedOrder(61, seed=8))
