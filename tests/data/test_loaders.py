"""Loaders: torch's batches and random numbers, epoch by epoch, from anywhere."""

from __future__ import annotations

import functools
import logging
import random
import warnings
from itertools import chain
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch
import transformers
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
    default_collate,
)
from torch.utils.data.datapipes.iter import IterableWrapper
from transformers import trainer_utils as original

from footplate.data.loaders import (
    Loader,
    build_loader,
    has_length,
    num_examples,
    seed_worker,
    start_at,
)
from footplate.data.order import LengthGroupedOrder, RandomOrder, SequentialOrder
from footplate.data.samplers import IterableDatasetShard

FIELDS = {
    "dataloader_num_workers": 0,
    "dataloader_pin_memory": True,
    "dataloader_persistent_workers": False,
    "dataloader_prefetch_factor": None,
    "dataloader_drop_last": False,
    "dataloader_multiprocessing_context": None,
    "dataloader_in_order": True,
    "process_index": 0,
    "seed": 42,
    "data_seed": None,
    "disable_tqdm": True,
}


def settings(**changes):
    return SimpleNamespace(**{**FIELDS, **changes})


class Numbers(Dataset):
    """Samples that are their own index, and a list of those that were read."""

    def __init__(self, num_samples=23):
        self.num_samples = num_samples
        self.read = []

    def __len__(self):
        return self.num_samples

    def __getitem__(self, index):
        self.read.append(index)
        return {"x": index}


class ManyAtOnce(Numbers):
    """Samples that come by the batch."""

    def __getitems__(self, indices):
        assert isinstance(indices, list)
        return [{"x": index} for index in indices]


class Stream(IterableDataset):
    """A stream without a length that may be told its epoch."""

    def __init__(self, num_samples=23):
        self.num_samples = num_samples
        self.epoch = None

    def __iter__(self):
        return iter([{"x": index} for index in range(self.num_samples)])

    def set_epoch(self, epoch):
        self.epoch = epoch


class SizedStream(Stream):
    """A stream with a length."""

    def __len__(self):
        return self.num_samples


def ids(loader):
    return [batch["x"].tolist() for batch in loader]


def flat_ids(loader):
    return list(chain.from_iterable(ids(loader)))


def random_collate(samples):
    """Draws from torch's global state, as masking collators do."""
    return {"x": torch.tensor([sample["x"] for sample in samples]), "noise": torch.rand(len(samples))}


DATA = [
    Numbers(),
    ManyAtOnce(),
    Stream(),
    SizedStream(),
    datasets.Dataset.from_dict({"x": list(range(23))}),
    datasets.Dataset.from_dict({"x": list(range(23))}).with_format("torch"),
    datasets.Dataset.from_dict({"x": list(range(23))}).to_iterable_dataset(),
    [{"x": index} for index in range(23)],
]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("dataset", DATA, ids=lambda dataset: type(dataset).__name__)
def test_batches_and_random_state_are_those_of_torchs_loader(dataset, drop_last):
    results = []
    for kind in (Loader, DataLoader):
        torch.manual_seed(0)
        loader = kind(dataset, batch_size=4, drop_last=drop_last, collate_fn=random_collate)
        batches = [[(batch["x"].tolist(), batch["noise"].tolist()) for batch in loader] for _ in range(2)]
        results.append((batches, torch.rand(1)))
    assert results[0] == results[1]
    assert len(results[0][0][0]) == (5 if drop_last else 6)


@pytest.mark.parametrize(
    "sampler",
    [
        lambda: SequentialOrder(23),
        lambda: RandomOrder(23, 1),
        lambda: RandomSampler(range(23)),
        lambda: WeightedRandomSampler(torch.ones(23), 30),
        lambda: [3, 1, 2, 5, 5],
    ],
)
def test_any_sampler_gives_what_it_gives_to_torchs_loader(sampler):
    results = []
    for kind in (Loader, DataLoader):
        torch.manual_seed(0)
        loader = kind(Numbers(), batch_size=4, sampler=sampler())
        results.append((ids(loader), len(loader), torch.rand(1)))
    assert results[0] == results[1]


@pytest.mark.parametrize("dataset", [Numbers(), Stream()])
def test_starting_a_pass_draws_one_base_seed_at_once(dataset):
    states = []
    for kind in (Loader, DataLoader):
        torch.manual_seed(0)
        iterator = iter(kind(dataset, batch_size=4))
        states.append(torch.get_rng_state())
        del iterator
    assert torch.equal(*states)
    torch.manual_seed(0)
    torch.empty((), dtype=torch.int64).random_()
    assert torch.equal(torch.get_rng_state(), states[0])


def test_a_generator_of_its_own_leaves_the_global_state_alone():
    generators = [torch.Generator().manual_seed(3) for _ in range(2)]
    before = torch.get_rng_state()
    for kind, generator in zip((Loader, DataLoader), generators, strict=True):
        list(kind(Numbers(), batch_size=4, generator=generator))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(generators[0].get_state(), generators[1].get_state())


def training_batches_of_original(dataset, epochs, tmp_path, **arguments):
    """What transformers' trainer trains on, with a draw after each batch where a model's dropout would be."""
    args = transformers.TrainingArguments(
        tmp_path, use_cpu=True, report_to=[], per_device_train_batch_size=4, seed=42, **arguments
    )
    trainer = transformers.Trainer(Regression(), args, data_collator=random_collate, train_dataset=dataset)
    return draws(trainer.get_train_dataloader(), epochs)


def draws(loader, epochs):
    """Batches, what the collator drew, and a draw by the step that uses each batch."""
    torch.manual_seed(1)
    seen = []
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        for batch in loader:
            seen.append((batch["x"].tolist(), batch["noise"].tolist(), torch.rand(1).item()))
    return seen


class Regression(torch.nn.Module):
    """A model with one weight."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x, labels=None):
        return {"loss": (self.weight * x).mean()}


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("data_seed", [None, 7])
@pytest.mark.parametrize("sampler", [RandomOrder(23, 42), RandomSampler(range(23))])
def test_training_batches_and_draws_are_the_originals(num_workers, data_seed, sampler, tmp_path):
    theirs = training_batches_of_original(
        Numbers(), 3, tmp_path, dataloader_num_workers=num_workers, data_seed=data_seed
    )
    args = settings(dataloader_num_workers=num_workers, data_seed=data_seed)
    if data_seed is not None and isinstance(sampler, RandomOrder):
        sampler = RandomOrder(23, data_seed)
    loader = build_loader(
        Numbers(), args, batch_size=4, collate=random_collate, sampler=sampler, is_training=True
    )
    assert draws(loader, 3) == theirs


def test_a_trained_stream_and_its_draws_are_the_originals(tmp_path):
    theirs = training_batches_of_original(SizedStream(), 2, tmp_path)
    loader = build_loader(SizedStream(), settings(), batch_size=4, collate=random_collate, is_training=True)
    assert draws(loader, 2) == theirs


@pytest.mark.parametrize("position", [0, 5, 8])
@pytest.mark.parametrize(
    "dataset", [Numbers(), ManyAtOnce(), datasets.Dataset.from_dict({"x": list(range(23))})]
)
def test_no_workers_and_two_workers_deliver_the_same_batches(dataset, position):
    delivered = []
    for num_workers in (0, 2):
        args = settings(dataloader_num_workers=num_workers)
        order = LengthGroupedOrder(range(1, 24), 4, seed=1)
        loader = build_loader(
            dataset, args, batch_size=4, collate=default_collate, sampler=order, is_training=True
        )
        loader.set_epoch(2)
        loader.seek(position)
        delivered.append(ids(loader))
    assert delivered[0] == delivered[1]
    assert list(chain.from_iterable(delivered[0])) == list(order.indices(2))[position:]


@pytest.mark.parametrize("is_training", [False, True])
def test_seeking_reads_no_skipped_sample_and_lasts_one_pass(is_training):
    dataset = Numbers()
    order = RandomOrder(23, 0)
    loader = Loader(dataset, batch_size=4, sampler=order, is_training=is_training)
    loader.seek(17)
    assert len(loader) == 6
    assert len(ids(loader)) == 2
    assert dataset.read == list(order.indices(0))[17:]
    loader.set_epoch(1)
    assert flat_ids(loader) == list(order.indices(1))


def test_a_pass_starts_late_by_seeking_or_else_by_reading_past(caplog):
    dataset, order = Numbers(), RandomOrder(23, 0)
    assert flat_ids(start_at(Loader(dataset, batch_size=4, sampler=order), 8, 2)) == order.indices(0)[8:]
    assert len(dataset.read) == 15
    assert not caplog.records
    assert flat_ids(start_at(Loader(Stream(), batch_size=4), 8, 2)) == list(range(8, 23))
    assert "reading and dropping 2 batches" in caplog.text


def test_only_an_order_can_be_sought_in():
    class Halves(BatchSampler):
        """Arranges batches in its own way, so that a position means nothing."""

    with pytest.raises(ValueError, match="draws from SequentialSampler"):
        Loader(Numbers(), batch_size=4).seek(3)
    with pytest.raises(ValueError, match="SampleOrder"):
        Loader(Numbers(), batch_sampler=Halves(RandomOrder(23), 4, False)).seek(3)
    assert Loader(Numbers(), batch_sampler=BatchSampler(RandomOrder(23), 4, False)).order is not None
    assert Loader(Stream(), batch_size=4).order is None


def test_a_whole_training_pass_moves_to_the_next_epoch_and_a_broken_one_does_not():
    order = RandomOrder(23, 0)
    loader = Loader(Numbers(), batch_size=4, sampler=order, is_training=True)
    next(iter(loader))
    passes = [flat_ids(loader) for _ in range(3)]
    assert passes == [list(order.indices(epoch)) for epoch in range(3)]
    quiet = Loader(Numbers(), batch_size=4, sampler=RandomOrder(23, 0))
    assert ids(quiet) == ids(quiet)


def test_the_epoch_reaches_samplers_batch_samplers_and_datasets():
    class Halves(BatchSampler):
        def set_epoch(self, epoch):
            self.epoch = epoch

    shared = DistributedSampler(Numbers(), num_replicas=2, rank=0)
    halves = Halves(shared, 4, False)
    loader = Loader(Numbers(), batch_sampler=halves)
    loader.set_epoch(3)
    assert shared.epoch == halves.epoch == 3
    stream = Stream()
    Loader(stream, batch_size=4).set_epoch(5)
    assert stream.epoch == 5
    assert next(iter(Loader(stream, batch_size=4, is_training=True))) is not None
    assert stream.epoch == 0  # a training pass says its own epoch when it starts


def test_training_reads_one_batch_ahead_and_evaluation_does_not():
    for is_training, num_read in ((True, 8), (False, 4)):
        dataset = Numbers()
        next(iter(Loader(dataset, batch_size=4, is_training=is_training)))
        assert len(dataset.read) == num_read


def test_reading_ahead_keeps_every_batch():
    for count in range(4):
        assert list(one_ahead(iter(range(count)))) == list(range(count))


def test_a_stream_that_ended_is_not_asked_again():
    class Once:
        """An iterator that must not be called after its end."""

        def __init__(self):
            self.left = 5

        def __iter__(self):
            return self

        def __next__(self):
            self.left -= 1
            assert self.left >= -1
            if self.left < 0:
                raise StopIteration
            return self.left

    assert list(read_stream(Once(), 3, False, list)) == [[4, 3, 2], [1, 0]]
    assert list(read_stream(Once(), 3, True, list)) == [[4, 3, 2]]


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


def test_persistent_workers_serve_several_epochs():
    args = settings(dataloader_num_workers=2, dataloader_persistent_workers=True)
    order = RandomOrder(23, 0)
    loader = build_loader(
        Numbers(), args, batch_size=4, collate=default_collate, sampler=order, is_training=True
    )
    assert [flat_ids(loader) for _ in range(2)] == [list(order.indices(epoch)) for epoch in range(2)]
    workers = loader._iterator._workers
    loader.seek(20)
    loader.set_epoch(0)
    assert ids(loader) == [list(order.indices(0))[20:]]
    assert loader._iterator._workers is workers


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


def test_unusual_loaders_go_the_way_of_torch():
    assert ids(Loader(IterableWrapper([{"x": 1}, {"x": 2}]), batch_size=2)) == [[1, 2]]
    assert [item["x"] for item in Loader(Numbers(3), batch_size=None)] == [0, 1, 2]


class Dice(Dataset):
    """Samples drawn at random by each of the three generators in use."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return random.random(), np.random.rand(), torch.rand(1).item()


@pytest.mark.parametrize("rank", [0, 3])
def test_workers_are_seeded_as_the_original_seeds_them(rank):
    args = settings(dataloader_num_workers=2, process_index=rank)
    ours = build_loader(Dice(), args, batch_size=3, collate=list, is_training=True)
    theirs = DataLoader(
        Dice(),
        batch_size=3,
        collate_fn=list,
        num_workers=2,
        worker_init_fn=functools.partial(original.seed_worker, num_workers=2, rank=rank),
    )
    thrown = []
    for loader in (ours, theirs):
        torch.manual_seed(11)
        thrown.append(list(loader))
    assert thrown[0] == thrown[1]
    assert len({value for batch in thrown[0] for sample in batch for value in sample}) == 36


def test_a_worker_seed_beyond_32_bits_is_accepted():
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    torch.manual_seed(2**32 - 1)
    seed_worker(0, num_workers=4, rank=2)
    assert torch.initial_seed() == 2**32 + 7
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


def test_having_a_length_means_that_len_answers():
    class Unfinished:
        def __len__(self):
            raise AttributeError("not computed yet")

    for thing in ([1], [], Numbers(), Stream(), SizedStream(), Unfinished(), None):
        assert has_length(thing) is original.has_length(thing)


def test_examples_are_counted_by_the_dataset_or_else_estimated():
    assert num_examples(Loader(Numbers(), batch_size=4), 99) == 23
    shard = IterableDatasetShard(SizedStream(), 4, num_processes=2)
    assert num_examples(Loader(shard, batch_size=4), 99) == 23
    assert num_examples([1, 2, 3], 8) == 24
    with pytest.raises(TypeError):
        num_examples(Loader(Stream(), batch_size=4), 8)
