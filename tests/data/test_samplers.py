"""The API's samplers beside the originals, and the choice of an order by name."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset
from transformers import trainer_pt_utils as original

from footplate.data import samplers
from footplate.data.keyed import KeyedOrder
from footplate.data.order import LengthGroupedOrder, RandomOrder, SequentialOrder, WeightedOrder
from footplate.data.samplers import (
    DistributedLengthGroupedSampler,
    DistributedSamplerWithLoop,
    IterableDatasetShard,
    LengthGroupedSampler,
    ShardSampler,
    build_order,
    get_length_grouped_indices,
    read_weights,
)

NAMES = [
    "DistributedLengthGroupedSampler",
    "DistributedSamplerWithLoop",
    "IterableDatasetShard",
    "LengthGroupedSampler",
    "ShardSampler",
    "get_length_grouped_indices",
]
LENGTHS = np.clip(np.random.default_rng(1).lognormal(4, 1.2, 1003), 1, None).astype(int)
TEXTS = [{"input_ids": [0] * int(length)} for length in LENGTHS[:50]]


class Stream(IterableDataset):
    """A few numbers, shuffled by a generator of its own if it has one."""

    def __init__(self, num_samples, generator=None):
        self.num_samples = num_samples
        self.generator = generator

    def __len__(self):
        return self.num_samples

    def __iter__(self):
        if self.generator is None:
            return iter(range(self.num_samples))
        return iter(torch.randperm(self.num_samples, generator=self.generator).tolist())


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_the_originals(name):
    ours, theirs = getattr(samplers, name), getattr(original, name)
    described = [
        [(p.name, p.default, p.kind) for p in inspect.signature(sampler).parameters.values()]
        for sampler in (ours, theirs)
    ]
    assert described[0] == described[1]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("num_samples", [0, 1, 3, 16, 17, 29])
def test_shard_sampler_equals_the_original(num_samples, drop_last):
    for num_processes in (1, 2, 5):
        for index in range(num_processes):
            settings = (range(num_samples), 3, drop_last, num_processes, index)
            ours, theirs = ShardSampler(*settings), original.ShardSampler(*settings)
            assert list(ours) == list(theirs)
            assert len(ours) == len(theirs)


@pytest.mark.parametrize("num_samples", [4, 16, 17, 29])
def test_distributed_sampler_with_loop_equals_the_original(num_samples):
    for num_replicas in (1, 2, 3):
        for rank in range(num_replicas):
            settings = {"num_replicas": num_replicas, "rank": rank, "seed": 4}
            ours = DistributedSamplerWithLoop(range(num_samples), 4, **settings)
            theirs = original.DistributedSamplerWithLoop(range(num_samples), 4, **settings)
            ours.set_epoch(2)
            theirs.set_epoch(2)
            assert list(ours) == list(theirs)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("num_samples", [0, 1, 2, 12, 13, 29])
def test_iterable_shard_equals_the_original(num_samples, drop_last):
    for num_processes in (1, 2, 3):
        for index in range(num_processes):
            settings = (3, drop_last, num_processes, index)
            ours = IterableDatasetShard(Stream(num_samples), *settings)
            theirs = original.IterableDatasetShard(Stream(num_samples), *settings)
            assert list(ours) == list(theirs)
            assert len(ours) == len(theirs)
            assert ours.num_examples == theirs.num_examples == num_samples


def test_iterable_shard_seeds_the_streams_generator_by_epoch_as_the_original_does():
    ours = IterableDatasetShard(Stream(20, torch.Generator()), 2, num_processes=2, seed=7)
    theirs = original.IterableDatasetShard(Stream(20, torch.Generator()), 2, num_processes=2, seed=7)
    passes = []
    for epoch in (0, 1):
        ours.set_epoch(epoch)
        theirs.set_epoch(epoch)
        passes.append(list(ours))
        assert passes[-1] == list(theirs)
    assert passes[0] != passes[1]


def test_iterable_shard_tells_the_stream_its_epoch():
    stream = Stream(4)
    stream.set_epoch = lambda epoch: setattr(stream, "epoch", epoch)
    IterableDatasetShard(stream).set_epoch(3)
    assert stream.epoch == 3


def test_length_grouped_sampler_reads_lengths_and_repeats_with_its_generator():
    sources = [
        {"dataset": TEXTS},
        {"lengths": LENGTHS[:50].tolist()},
        {"lengths": torch.tensor(LENGTHS[:50])},
    ]
    samplers_of_one_seed = [
        LengthGroupedSampler(4, generator=torch.Generator().manual_seed(1), **source) for source in sources
    ]
    orders = [list(sampler) for sampler in samplers_of_one_seed]
    assert orders[0] == orders[1] == orders[2]
    assert sorted(orders[0]) == list(range(50))
    assert len(samplers_of_one_seed[0]) == 50
    assert list(samplers_of_one_seed[0]) != orders[0]  # the generator has moved on
    assert LENGTHS[:50].max() in LENGTHS[orders[0][:4]]


def test_length_grouped_sampler_without_a_generator_follows_torchs_seed():
    torch.manual_seed(3)
    first = list(LengthGroupedSampler(4, dataset=TEXTS))
    torch.manual_seed(3)
    assert list(LengthGroupedSampler(4, dataset=TEXTS)) == first


@pytest.mark.parametrize("sampler", [LengthGroupedSampler, DistributedLengthGroupedSampler])
def test_a_length_grouped_sampler_needs_lengths_or_a_dataset(sampler):
    with pytest.raises(ValueError, match="Neither lengths nor a dataset"):
        sampler(4)


def test_windows_limit_the_grouping_to_as_many_batches():
    generator = torch.Generator().manual_seed(0)
    indices = get_length_grouped_indices(LENGTHS, 8, mega_batch_mult=5, generator=generator)
    assert sorted(indices) == list(range(len(LENGTHS)))
    assert LENGTHS.max() in LENGTHS[indices[:8]]
    spread = [
        np.median([np.ptp(LENGTHS[order[start : start + 8]]) for start in range(0, 1000, 8)])
        for order in (get_length_grouped_indices(LENGTHS, 8, generator=generator), indices, list(range(1003)))
    ]
    assert spread[0] < spread[1] < spread[2]


@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_share_grouped_samples_and_pad_alike(drop_last):
    settings = {"num_replicas": 2, "seed": 1, "drop_last": drop_last}
    ranks = [DistributedLengthGroupedSampler(8, lengths=LENGTHS, rank=rank, **settings) for rank in range(2)]
    theirs = original.DistributedLengthGroupedSampler(8, lengths=LENGTHS.tolist(), rank=0, **settings)
    for sampler in ranks:
        sampler.set_epoch(1)
    shares = [list(sampler) for sampler in ranks]
    assert len(shares[0]) == len(shares[1]) == len(ranks[0]) == len(theirs) == len(list(theirs))
    missing = set(range(len(LENGTHS))) - {*shares[0], *shares[1]}
    assert len(missing) == (1 if drop_last else 0)
    longest = [LENGTHS[share[8:496]].reshape(-1, 8).max(axis=1) for share in shares]
    assert np.median(np.abs(longest[0] - longest[1]) / longest[0]) < 0.1
    ranks[0].set_epoch(2)
    assert list(ranks[0]) != shares[0]


SETTINGS = {"seed": 42, "length_column_name": "length", "order_memory_limit": "4GB", "should_log": True}
ARGS = SimpleNamespace(data_seed=None, **SETTINGS)


def test_orders_are_chosen_by_name_with_the_data_seed_before_the_seed():
    seeded = SimpleNamespace(data_seed=0, **SETTINGS)
    for args, seed in ((ARGS, 42), (seeded, 0)):
        order = build_order("random", TEXTS, args, batch_size=4)
        assert type(order) is RandomOrder
        assert list(order) == list(RandomOrder(50, seed))
        keyed = build_order("keyed", TEXTS, args, batch_size=4)
        assert type(keyed) is KeyedOrder
        assert list(keyed) == list(KeyedOrder(50, seed))
    assert type(build_order("sequential", TEXTS, ARGS, batch_size=4)) is SequentialOrder
    weighted = build_order("weighted", TEXTS, ARGS, batch_size=4, weights=[1.0] * 50)
    assert type(weighted) is WeightedOrder
    assert weighted.seed == 42
    for name in ("group_by_length", "batch_rebalance"):
        order = build_order(name, TEXTS, ARGS, batch_size=4)
        assert list(order) == list(LengthGroupedOrder(LENGTHS[:50], 4, 42))


def test_the_named_model_input_counts_for_grouping():
    sounds = [{"input_values": [0.0] * size, "input_ids": [1]} for size in (5, 1, 9, 2)]
    order = build_order("group_by_length", sounds, ARGS, batch_size=1, model_input_name="input_values")
    assert order.lengths.tolist() == [5, 1, 9, 2]


def test_weights_are_given_or_read_from_a_column():
    rows = [{"weight": index / 2, "x": index} for index in range(4)]
    stored = datasets.Dataset.from_list(rows)
    assert read_weights([1.0, 2.0], rows) == [1.0, 2.0]
    assert read_weights(None, rows) is None
    assert read_weights("weight", rows) == [0.0, 0.5, 1.0, 1.5]
    in_torch = read_weights("weight", stored.with_format("torch"))
    assert in_torch.tolist() == [0.0, 0.5, 1.0, 1.5]
    assert in_torch.flags.writeable  # or torch would warn
    assert read_weights("weight", stored.select([3, 1])).tolist() == [1.5, 0.5]
    for dataset in (rows, stored):
        with pytest.raises(ValueError, match="sample_weights='heft' is not a column"):
            read_weights("heft", dataset)


def test_an_unknown_name_or_missing_weights_are_refused():
    with pytest.raises(ValueError, match="'by_size' is none of random, sequential, group_by_length"):
        build_order("by_size", TEXTS, ARGS, batch_size=4)
    with pytest.raises(ValueError, match="sample_weights has 0 entries for 50 samples"):
        build_order("weighted", TEXTS, ARGS, batch_size=4)
    with pytest.raises(ValueError, match="2 entries for 50"):
        build_order("weighted", TEXTS, ARGS, batch_size=4, weights=[1.0, 2.0])
