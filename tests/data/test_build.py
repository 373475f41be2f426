"""Loaders from the arguments: what reaches them, and what they share with the original."""

from __future__ import annotations

import functools
import logging
import random
import warnings
from itertools import chain

import datasets
import numpy as np
import pytest
import torch
import transformers
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, default_collate
from transformers import trainer_utils as original

from footplate.arguments import AcceleratorConfig
from footplate.data.build import build_loader, plan_ranks, seed_worker, shard_stream
from footplate.data.loader import Loader, num_examples
from footplate.data.order import RandomOrder
from footplate.data.samplers import IterableDatasetShard
from footplate.data.shares import ALONE, DIVIDE, FILL, KEEP, Ranks
from numbered import Noisy, Numbers, SizedStream, Stream, contents, flat_ids, ids, random_collate, settings


class Regression(torch.nn.Module):
    """A model with one weight."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x, labels=None):
        return {"loss": (self.weight * x).mean()}


def training_draws_of_original(dataset, epochs, tmp_path, collate=default_collate, **arguments):
    """What transformers' trainer trains on, with a draw after each batch where a model's dropout would be."""
    args = transformers.TrainingArguments(
        tmp_path, use_cpu=True, report_to=[], per_device_train_batch_size=4, seed=42, **arguments
    )
    trainer = transformers.Trainer(Regression(), args, data_collator=collate, train_dataset=dataset)
    return draws(trainer.get_train_dataloader(), epochs)


def draws(loader, epochs):
    """Batches, and a draw by the step that uses each batch."""
    torch.manual_seed(1)
    seen = []
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        for batch in loader:
            seen.append((batch["x"].tolist(), torch.rand(1).item()))
    return seen


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("data_seed", [None, 7])
@pytest.mark.parametrize("sampler", [RandomOrder(23, 42), RandomSampler(range(23))])
def test_training_batches_and_draws_are_the_originals(num_workers, data_seed, sampler, tmp_path):
    theirs = training_draws_of_original(
        Numbers(), 3, tmp_path, dataloader_num_workers=num_workers, data_seed=data_seed
    )
    args = settings(dataloader_num_workers=num_workers, data_seed=data_seed)
    if data_seed is not None and isinstance(sampler, RandomOrder):
        sampler = RandomOrder(23, data_seed)
    loader = build_loader(
        Numbers(), args, batch_size=4, collate=default_collate, sampler=sampler, is_training=True
    )
    assert draws(loader, 3) == theirs


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_trained_stream_and_its_draws_are_the_originals(num_workers, tmp_path):
    theirs = training_draws_of_original(SizedStream(), 2, tmp_path, dataloader_num_workers=num_workers)
    args = settings(dataloader_num_workers=num_workers)
    loader = build_loader(SizedStream(), args, batch_size=4, collate=default_collate, is_training=True)
    assert draws(loader, 2) == theirs


@pytest.mark.parametrize("dataset", [Numbers(), SizedStream()])
def test_random_data_read_in_this_process_draws_as_the_originals(dataset, tmp_path):
    """What a collator draws is missing where dropout draws, one batch ahead; with workers it is not."""
    theirs = [
        training_draws_of_original(dataset, 2, tmp_path, random_collate, dataloader_num_workers=num_workers)
        for num_workers in (0, 2)
    ]
    is_stream = isinstance(dataset, SizedStream)
    ours = [
        draws(
            build_loader(
                dataset,
                settings(dataloader_num_workers=num_workers),
                batch_size=4,
                collate=random_collate,
                sampler=None if is_stream else RandomOrder(23, 42),
                is_training=True,
            ),
            2,
        )
        for num_workers in (0, 2)
    ]
    assert ours == theirs
    assert theirs[0] != theirs[1]


def test_random_data_of_workers_goes_by_the_seed_of_the_data():
    def first(**changes):
        args = settings(dataloader_num_workers=1, **changes)
        loader = build_loader(Noisy(), args, batch_size=4, collate=random_collate)
        return contents([next(iter(loader))])

    assert first(seed=1) == first(seed=3, data_seed=1) != first(seed=3)
    assert first() == first(process_index=1)  # the place in the epoch decides: two processes differ in it
    one, other = (first(world_size=2, process_index=index)[0]["noise"] for index in range(2))
    assert not set(chain(*one)) & set(chain(*other))


def test_settings_reach_the_loader():
    args = settings(
        dataloader_num_workers=2,
        dataloader_persistent_workers=True,
        dataloader_prefetch_factor=3,
        dataloader_drop_last=True,
        dataloader_multiprocessing_context="fork",
        dataloader_in_order=False,
    )
    loader = build_loader(Numbers(), args, batch_size=4, collate=default_collate, is_training=True)
    assert (loader.num_workers, loader.persistent_workers, loader.prefetch_factor) == (2, True, 3)
    assert (loader.drop_last, loader.in_order, loader.batch_size) == (True, False, 4)
    assert loader.multiprocessing_context.get_start_method() == "fork"
    assert isinstance(loader.sampler, SequentialSampler)
    assert build_loader(Stream(), args, batch_size=4, collate=default_collate).drop_last


def test_worker_settings_without_workers_are_named_once(caplog):
    args = settings(dataloader_persistent_workers=True, dataloader_prefetch_factor=4)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert len(ids(build_loader(Numbers(), args, batch_size=4, collate=default_collate))) == 6
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "dataloader_persistent_workers, dataloader_prefetch_factor"
    ]


def test_pinning_without_a_device_is_not_even_tried():
    loader = build_loader(Numbers(), settings(), batch_size=4, collate=default_collate)
    assert loader.pin_memory is torch.accelerator.is_available()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(loader)


def test_a_batch_sampler_is_taken_as_such():
    batches = BatchSampler(RandomOrder(23, 5), 7, True)
    loader = build_loader(Numbers(), settings(), batch_size=4, collate=default_collate, sampler=batches)
    assert ids(loader) == list(batches)
    assert len(loader) == 3


def test_streams_take_no_sampler():
    loader = build_loader(
        Stream(), settings(), batch_size=4, collate=default_collate, sampler=RandomOrder(23), is_training=True
    )
    assert flat_ids(loader) == list(range(23))
    with pytest.raises(TypeError):
        len(loader)
    assert len(build_loader(SizedStream(), settings(), batch_size=4, collate=default_collate)) == 6


def test_a_worker_seed_beyond_32_bits_is_accepted():
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    torch.manual_seed(2**32 - 1)
    seed_worker(0, num_workers=4, rank=2)
    assert torch.initial_seed() == 2**32 + 7
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


def test_examples_are_counted_by_the_dataset_or_else_estimated():
    assert num_examples(Loader(Numbers(), batch_size=4), 99) == 23
    shard = IterableDatasetShard(SizedStream(), 4, num_processes=2)
    assert num_examples(Loader(shard, batch_size=4), 99) == 23
    assert num_examples([1, 2, 3], 8) == 24
    with pytest.raises(TypeError):
        num_examples(Loader(Stream(), batch_size=4), 8)


class Dice(Numbers):
    """Samples drawn at random by each of the three generators in use."""

    def __getitem__(self, index):
        return random.random(), np.random.rand(), torch.rand(1).item()


@pytest.mark.parametrize("rank", [0, 3])
def test_workers_can_be_seeded_as_the_original_seeds_them(rank):
    thrown = []
    for seed in (seed_worker, original.seed_worker):
        torch.manual_seed(11)
        init = functools.partial(seed, num_workers=2, rank=rank)
        loader = DataLoader(Dice(12), batch_size=3, collate_fn=list, num_workers=2, worker_init_fn=init)
        thrown.append(list(loader))
    assert thrown[0] == thrown[1]
    assert len({value for batch in thrown[0] for sample in batch for value in sample}) == 36


# ---- several processes ----


def second_of_three(**config):
    """The settings of the second of three processes."""
    return settings(world_size=3, process_index=1, accelerator_config=AcceleratorConfig(**config))


@pytest.mark.parametrize(
    ("config", "is_training", "fills_rounds", "ending"),
    [
        ({}, True, True, FILL),
        ({"even_batches": False}, True, True, DIVIDE),
        ({"even_batches": False}, False, True, FILL),
        ({}, False, True, FILL),
        ({}, False, False, KEEP),
    ],
)
def test_processes_share_out_and_end_as_the_settings_say(config, is_training, fills_rounds, ending):
    assert plan_ranks(second_of_three(**config), None, is_training, fills_rounds) == Ranks(1, 3, ending)


def test_one_process_shares_with_nobody():
    assert plan_ranks(settings(), None, True, True) is ALONE


def test_a_sampler_that_shares_out_by_itself_is_left_alone():
    args = second_of_three()
    own = torch.utils.data.DistributedSampler(range(9), num_replicas=3, rank=1)
    assert plan_ranks(args, own, True, True) is ALONE
    other = torch.utils.data.DistributedSampler(range(9), num_replicas=2, rank=1)
    assert plan_ranks(args, other, True, True) == Ranks(1, 3, FILL)


def test_sending_batches_from_the_first_process_is_refused():
    args = second_of_three(dispatch_batches=True)
    with pytest.raises(ValueError, match=r"dispatch_batches=True.*Leave it unset"):
        build_loader(Numbers(8), args, batch_size=2, collate=default_collate, is_training=True)


def test_a_loader_gives_the_rows_of_its_process():
    args = second_of_three()
    loader = build_loader(Numbers(14), args, batch_size=2, collate=default_collate, is_training=True)
    assert flat_ids(loader) == [2, 3, 8, 9, 0, 1]  # 12 and 13 go to the first, and rows of the start fill up


class OwnShards(Stream):
    """A stream that can give a part of itself."""

    def shard(self, num_shards, index):
        return ("part", index, "of", num_shards)


def test_a_stream_is_sharded_by_itself_where_it_can():
    ranks = Ranks(1, 3)
    assert shard_stream(OwnShards(10), ranks, 2, False) == ("part", 1, "of", 3)
    rows = datasets.Dataset.from_dict({"x": list(range(12))})
    part = shard_stream(rows.to_iterable_dataset(num_shards=6), ranks, 2, False)
    assert [row["x"] for row in part] == [4, 5, 6, 7]
    for whole in (Stream(12), rows.to_iterable_dataset(num_shards=2)):  # every third batch of it
        part = shard_stream(whole, ranks, 2, False)
        assert isinstance(part, IterableDatasetShard)
        assert [row["x"] if isinstance(row["x"], int) else int(row["x"]) for row in part] == [2, 3, 8, 9]


def test_a_sharded_stream_is_read_apart_in_training_only():
    args = second_of_three(dispatch_batches=False)
    loaders = [
        build_loader(Stream(12), args, batch_size=2, collate=default_collate, is_training=is_training)
        for is_training in (True, False)
    ]
    assert [loader.may_end_early for loader in loaders] == [True, False]
    assert [loader.ranks for loader in loaders] == [ALONE, Ranks(1, 3, FILL)]
    assert isinstance(loaders[0].dataset, IterableDatasetShard)
