"""The order of samples: a pure function of seed and epoch, sought by slicing."""

from __future__ import annotations

import copy
import time

import numpy as np
import pytest
import torch
from accelerate.data_loader import SeedableRandomSampler
from torch.utils.data import RandomSampler, WeightedRandomSampler
from transformers.trainer_pt_utils import get_length_grouped_indices as original_grouping

from footplate.data.order import (
    LengthGroupedOrder,
    RandomOrder,
    ReseededOrder,
    SampleOrder,
    SequentialOrder,
    WeightedOrder,
)


def long_tailed(num_samples: int, spread: float = 1.2) -> np.ndarray:
    """Lengths as text has them: most short, a few very long."""
    return np.clip(np.random.default_rng(0).lognormal(4, spread, num_samples), 1, None).astype(np.int64)


def padding_share(lengths: np.ndarray, indices: list[int], batch_size: int) -> float:
    """The part of all padded batches that holds no token."""
    batches = [lengths[indices[start : start + batch_size]] for start in range(0, len(indices), batch_size)]
    return 1 - lengths[indices].sum() / sum(batch.max() * len(batch) for batch in batches)


ORDERS = [
    SequentialOrder(23),
    RandomOrder(23, seed=5),
    WeightedOrder(np.arange(1, 24), seed=5),
    LengthGroupedOrder(long_tailed(23), 4, seed=5),
    ReseededOrder(RandomSampler(range(23)), seed=5),
]


@pytest.mark.parametrize("epoch", [0, 1, 7])
def test_random_order_is_torchs_permutation_and_accelerates(epoch):
    order = RandomOrder(101, seed=42)
    order.set_epoch(epoch)
    theirs = SeedableRandomSampler(range(101), data_seed=42)
    theirs.set_epoch(epoch)
    drawn = torch.randperm(101, generator=torch.Generator().manual_seed(42 + epoch)).tolist()
    assert list(order) == list(theirs) == drawn


@pytest.mark.parametrize("settings", [{}, {"num_samples": 70}, {"replacement": True, "num_samples": 70}])
def test_a_random_sampler_reseeded_draws_what_accelerate_draws(settings):
    order = ReseededOrder(RandomSampler(range(30), **settings), seed=3)
    theirs = SeedableRandomSampler(range(30), data_seed=3, **settings)
    for epoch in range(3):
        order.set_epoch(epoch)
        theirs.set_epoch(epoch)
        assert list(order) == list(theirs)


def test_weighted_order_is_torchs_weighted_sampler_on_the_epochs_generator():
    weights = torch.linspace(0, 1, 50)
    generator = torch.Generator().manual_seed(9 + 2)
    order = WeightedOrder(weights, seed=9)
    order.set_epoch(2)
    drawn = list(order)
    assert drawn == list(WeightedRandomSampler(weights, 50, generator=generator))
    assert 0 not in drawn  # a weight of zero is never drawn


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [1.0, -1.0], [1.0, float("nan")], [[1.0], [2.0]]])
def test_weights_that_order_nothing_are_refused(weights):
    with pytest.raises(ValueError, match="one number per sample"):
        WeightedOrder(weights)


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_an_order_depends_on_seed_and_epoch_alone(order):
    before = torch.get_rng_state()
    order.set_epoch(0)
    first = list(order)
    order.set_epoch(1)
    second = list(order)
    order.set_epoch(0)
    assert list(order) == first
    assert (second != first) is not isinstance(order, SequentialOrder)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("position", [0, 1, 7, 22, 23])
@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_seeking_cuts_the_next_pass_and_only_that(order, position):
    whole = list(order)
    order.seek(position)
    order.set_epoch(order.epoch)  # a loader says the epoch again when it starts
    assert list(order) == whole[position:]
    assert list(order) == whole
    assert len(order) == 23


@pytest.mark.parametrize("position", [-1, 24])
def test_seeking_outside_the_epoch_is_refused(position):
    with pytest.raises(ValueError, match="positions 0 to 23"):
        RandomOrder(23).seek(position)


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_a_pass_can_follow_the_settings_it_began_with(order):
    begun = order.settings()
    whole = list(order)
    changed = copy.copy(order)
    changed.seed = 6
    changed.batch_size = 7
    changed.seek(5, begun)
    assert list(changed) == whole[5:]
    assert list(changed) == list(changed.indices(changed.epoch))  # the next pass goes by its own
    assert changed.seed == 6


def test_a_subclass_needs_only_indices():
    class Backwards(SampleOrder):
        def indices(self, epoch):
            return list(range(self.num_samples))[::-1]

    order = Backwards(4)
    order.seek(1)
    assert list(order) == [2, 1, 0]
    with pytest.raises(NotImplementedError, match=r"indices\(epoch\)"):
        list(SampleOrder(4))


@pytest.mark.parametrize("batch_size", [1, 8, 32])
@pytest.mark.parametrize("num_samples", [0, 1, 7, 32, 1000])
def test_length_grouping_gives_every_sample_once(num_samples, batch_size):
    order = LengthGroupedOrder(long_tailed(num_samples), batch_size, seed=1)
    for epoch in range(3):
        assert sorted(order.indices(epoch)) == list(range(num_samples))


@pytest.mark.parametrize("batch_size", [8, 32])
def test_length_grouping_pads_little_on_long_tailed_text(batch_size):
    lengths = long_tailed(10_003)
    grouped = padding_share(lengths, LengthGroupedOrder(lengths, batch_size).indices(0), batch_size)
    random = padding_share(lengths, RandomOrder(len(lengths)).indices(0), batch_size)
    generator = torch.Generator().manual_seed(0)
    original = original_grouping(lengths.tolist(), batch_size, generator=generator)
    theirs = padding_share(lengths, original, batch_size)
    assert grouped < 0.12
    assert random > 0.7
    assert grouped < 0.5 * theirs


def test_the_longest_batch_comes_first_and_the_short_one_last():
    lengths = long_tailed(1003)
    for epoch in range(5):
        indices = LengthGroupedOrder(lengths, 8, seed=2).indices(epoch)
        assert lengths.max() in lengths[indices[:8]]
        batch_spread = [np.ptp(lengths[indices[start : start + 8]]) for start in range(8, 1003, 8)]
        assert np.median(batch_spread) < 0.2 * np.median(lengths)  # batches did not shift across the groups
        assert len(indices) % 8 == 3


def test_grouped_batches_come_in_random_order_with_changing_neighbours():
    lengths = long_tailed(4000)
    order = LengthGroupedOrder(lengths, 8, seed=0)
    first, second = order.indices(0), order.indices(1)
    means = lengths[first[8:]].reshape(-1, 8).mean(axis=1)
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.15  # a batch says nothing about the next one
    together = {frozenset(first[start : start + 8]) for start in range(0, 4000, 8)}
    again = {frozenset(second[start : start + 8]) for start in range(0, 4000, 8)}
    assert len(together & again) < 10  # the few longest have no near-equals to change with


def test_the_short_batch_is_not_always_the_same_lengths():
    lengths = long_tailed(1003)
    order = LengthGroupedOrder(lengths, 8)
    assert len({int(lengths[order.indices(epoch)[-1]]) for epoch in range(20)}) > 10


def test_a_million_lengths_are_grouped_in_moments():
    order = LengthGroupedOrder(long_tailed(1_000_000), 8)
    start = time.process_time()
    order.indices(0)
    assert time.process_time() - start < 3


def test_a_batch_size_of_zero_is_refused():
    with pytest.raises(ValueError, match="batch_size=0"):
        LengthGroupedOrder([1, 2], 0)
