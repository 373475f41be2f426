"""A run that is cut short anywhere and resumed is the run that was never cut short, to the last bit."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import tempfile
from collections import UserDict
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)

import tiny
from augmented import AugmentedRows, AugmentedStream, augment
from footplate import Trainer, TrainerCallback, default_data_collator

NUM_ROWS, MAX_STEPS = 29, 12


class Noisy(nn.Module):
    """A small classifier with dropout."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layers(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Bare(IterableDataset):
    """A stream that can only be read from its beginning."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for index in range(NUM_ROWS):
            yield augment(index, NUM_ROWS)


class HeldRows(AugmentedRows):
    """Rows with noise from generators that the dataset holds, besides the global ones."""

    def __init__(self, num_rows: int) -> None:
        super().__init__(num_rows)
        self.noise = np.random.default_rng(1)
        self.parts = [{"old": np.random.RandomState(2), "python": random.Random(3)}]
        self.shift = torch.Generator().manual_seed(4)

    def __getitem__(self, index: int) -> dict[str, Any]:
        part, row = self.parts[0], super().__getitem__(index)
        noise = self.noise.normal() + part["old"].rand() + part["python"].random()
        return {**row, "x": row["x"] + noise + torch.rand(4, generator=self.shift)}


class HeldStream(IterableDataset):
    """A stream that shuffles a few rows at a time, and adds noise, from a generator that it holds."""

    def __init__(self) -> None:
        self.draw = random.Random(5)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        order = list(range(NUM_ROWS))
        self.draw.shuffle(order)  # alike in every worker, or rows would be lost
        for index in order[worker.id :: worker.num_workers] if worker else order:
            row = augment(index, NUM_ROWS)
            yield {**row, "x": row["x"] + self.draw.random()}


KINDS = {
    "rows": lambda: AugmentedRows(NUM_ROWS),
    "held rows": lambda: HeldRows(NUM_ROWS),
    "stream": lambda: AugmentedStream(NUM_ROWS),
    "bare stream": Bare,
    "held stream": HeldStream,
}


class Growing(BatchSampler):
    """Batches of one row, two rows, three rows, one row, ..."""

    def __init__(self, sampler: Any) -> None:
        super().__init__(sampler, 3, drop_last=False)

    def __iter__(self) -> Iterator[list[int]]:
        rows = iter(self.sampler)
        for size in itertools.cycle([1, 2, 3]):
            if not (batch := list(itertools.islice(rows, size))):
                return
            yield batch

    def __len__(self) -> int:
        rounds, rest = divmod(len(self.sampler), 6)
        return 3 * rounds + (0, 1, 2, 2, 3, 3)[rest]


class Lazy(Sampler):
    """Draws each index when it is asked for, from a generator that it holds."""

    def __init__(self) -> None:
        self.draw = np.random.default_rng(6)

    def __iter__(self) -> Iterator[int]:
        return (int(self.draw.integers(NUM_ROWS)) for _ in range(20))

    def __len__(self) -> int:
        return 20


SAMPLERS = {
    "shorter": lambda data: RandomSampler(data, replacement=True, num_samples=17),
    "longer": lambda data: WeightedRandomSampler([1.0 + i % 3 for i in range(len(data))], 41),
    "own generator": lambda data: WeightedRandomSampler(
        [1.0] * len(data), 41, generator=torch.Generator().manual_seed(8)
    ),
    "batches": lambda data: Growing(SubsetRandomSampler(range(23))),
    "lazy": lambda data: Lazy(),
}


def foreign(trainer: Any, **settings: Any) -> DataLoader:
    """A loader of the user's own."""
    args = trainer.args
    return DataLoader(
        trainer.train_dataset,
        batch_size=3,
        collate_fn=trainer.data_collator,
        num_workers=args.dataloader_num_workers,
        **settings,
    )


class Plain(AugmentedRows):
    """Rows without noise."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.full((4,), index / NUM_ROWS), "labels": index % 3, "id": index}


LOADERS = {
    "shuffled": lambda trainer: foreign(trainer, shuffle=True),
    "prepared": lambda trainer: trainer.accelerator.prepare(foreign(trainer, shuffle=True)),
    "with a generator": lambda trainer: foreign(
        trainer, shuffle=True, generator=torch.Generator().manual_seed(9)
    ),
    "persistent": lambda trainer: foreign(trainer, shuffle=True, persistent_workers=True),
}
EXACT_LOADERS = [name for name in LOADERS if name != "persistent"]  # whose workers draw the same again


class Setup(NamedTuple):
    kind: str = "rows"
    workers: int = 0
    accumulation: int = 1
    bf16: bool = False
    stores_batch: bool = True  # whether a checkpoint can hold the batch that waits, or must read it again
    sampler: str = "ours"  # or the name of a sampler or loader of the user's own
    persistent: bool = False  # workers live on, those of evaluation too
    masks: bool = False  # the collator holds a generator
    prefetches: bool = False  # batches are copied ahead, here from the CPU to the CPU

    @property
    def is_possible(self) -> bool:
        """Streams take no sampler; a loader of the user's own whose workers live on is only named."""
        is_stream = "stream" in self.kind
        return not (is_stream and self.sampler != "ours") and not (self.persistent and not self.workers)


class Recorder(Trainer):
    """Notes which samples went into every update that was completed."""

    def __init__(self, *args: Any, setup: Setup, **kwargs: Any) -> None:
        self.setup = setup
        self.seen: list[list[int]] = []
        self.under_way: list[int] = []
        super().__init__(*args, **kwargs)

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        if self.setup.sampler in SAMPLERS:
            return SAMPLERS[self.setup.sampler](self.train_dataset)
        return super()._get_train_sampler(train_dataset)

    def get_train_dataloader(self) -> Any:
        if self.setup.sampler in LOADERS:
            return LOADERS[self.setup.sampler](self)
        return super().get_train_dataloader()

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        self.under_way += inputs["id"].tolist()
        return super().training_step(model, inputs, num_items_in_batch)


class Flush(TrainerCallback):
    wants_step_data = False

    def on_step_begin(self, args: Any, state: Any, control: Any, trainer: Any = None, **kwargs: Any) -> None:
        trainer.under_way = []

    def on_step_end(self, args: Any, state: Any, control: Any, trainer: Any = None, **kwargs: Any) -> None:
        trainer.seen.append(trainer.under_way)


class Terminate(TrainerCallback):
    """Sends this process SIGTERM after so many micro-batches and evaluation batches."""

    wants_step_data = False

    def __init__(self, after: int) -> None:
        self.after = after

    def _count(self, *args: Any, **kwargs: Any) -> None:
        self.after -= 1
        if self.after == 0:
            os.kill(os.getpid(), signal.SIGTERM)

    on_substep_end = on_step_end = on_prediction_step = _count


def collate(samples: list[Any]) -> UserDict[str, Any]:
    """A batch of a type that a checkpoint cannot hold, such as tokenizers give; it draws, as maskers do."""
    batch = UserDict(default_data_collator(samples))
    batch["x"] = batch["x"] + random.random() + float(np.random.rand()) + torch.rand(())
    return batch


class Masking:
    """A collator with a generator that it makes when it is first called, as our masking collators do."""

    def __init__(self, collate: Any) -> None:
        self.collate, self.seed, self.generator = collate, 7, None

    def get_generator(self, seed: int) -> torch.Generator:
        return torch.Generator().manual_seed(seed)

    def __call__(self, samples: list[Any]) -> Any:
        self.generator = self.generator or self.get_generator(self.seed)
        batch = self.collate(samples)
        batch["x"] = batch["x"] * torch.rand((), generator=self.generator)
        return batch


def build(folder: str, setup: Setup, *callbacks: TrainerCallback) -> Recorder:
    arguments = tiny.arguments(
        folder,
        max_steps=MAX_STEPS,
        per_device_train_batch_size=3,
        gradient_accumulation_steps=setup.accumulation,
        dataloader_num_workers=setup.workers,
        dataloader_persistent_workers=setup.persistent,
        dataloader_prefetch_to_device=setup.prefetches,
        bf16=setup.bf16,
        learning_rate=0.01,
        lr_scheduler_type="cosine",
        logging_steps=2,
        eval_strategy="steps",
        eval_steps=3,
        save_strategy="steps",
        save_steps=1000,
        keep_columns=["id"],
    )
    collator: Any = default_data_collator if setup.stores_batch else collate
    return Recorder(
        Noisy(),
        arguments,
        train_dataset=Plain(NUM_ROWS) if setup.kind == "plain rows" else KINDS[setup.kind](),
        eval_dataset=AugmentedRows(7),
        data_collator=Masking(collator) if setup.masks else collator,
        callbacks=[Flush(), *callbacks],
        setup=setup,
    )


class Outcome(NamedTuple):
    weights: dict[str, torch.Tensor]
    optimizer: dict[str, Any]
    history: list[dict[str, Any]]
    seen: list[list[int]]
    train_loss: float


def outcome(trainer: Recorder, train_loss: float, seen: list[list[int]]) -> Outcome:
    timed = ("runtime", "per_second")
    history = [
        dict(sorted(item for item in entry.items() if not item[0].endswith(timed)))
        for entry in trainer.state.log_history
    ]
    return Outcome(trainer.model.state_dict(), trainer.optimizer.state_dict(), history, seen, train_loss)


@cache
def straight(setup: Setup) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        trainer = build(folder, setup)
        return outcome(trainer, trainer.train().training_loss, trainer.seen)


def interrupted(setup: Setup, stops: list[int]) -> Outcome:
    """Terminated after so many batches, resumed, terminated again, ..., then left to its end."""
    seen: list[list[int]] = []
    with tempfile.TemporaryDirectory() as folder:
        for stop in stops:
            trainer = build(folder, setup, Terminate(stop))
            with contextlib.suppress(SystemExit):  # a stop beyond its end never comes
                trainer.train(resume_from_checkpoint="auto")
            seen += trainer.seen
        trainer = build(folder, setup)
        result = trainer.train(resume_from_checkpoint="auto")
        return outcome(trainer, result.training_loss, seen + trainer.seen)


def assert_same(expected: Outcome, found: Outcome) -> None:
    assert found.seen == expected.seen
    assert repr(found.history) == repr(expected.history)
    assert found.train_loss == expected.train_loss
    for name, value in expected.weights.items():
        assert torch.equal(value, found.weights[name]), name
    for index, state in expected.optimizer["state"].items():
        for name, value in state.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(found.optimizer["state"][index][name]))


stops = st.integers(min_value=1, max_value=30)
setups = st.builds(
    Setup,
    st.sampled_from(sorted(KINDS)),
    st.sampled_from([0, 2]),
    st.sampled_from([1, 3]),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["ours", *SAMPLERS, *EXACT_LOADERS]),
    st.sampled_from([False, False, True]),
    st.booleans(),
    st.booleans(),
).filter(lambda setup: setup.is_possible)


def check_one_stop(setup, stop):
    assert_same(straight(setup), interrupted(setup, [stop]))


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(setups, stops)
def test_a_run_that_is_terminated_anywhere_goes_on_as_if_it_had_not_been(setup, stop):
    check_one_stop(setup, stop)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(setups, stops)
def test_many_runs_that_are_terminated_go_on_as_if_they_had_not_been(setup, stop):
    check_one_stop(setup, stop)


@settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(setups, st.lists(stops, min_size=3, max_size=3))
def test_three_resumes_in_a_row_are_exact(setup, stops):
    assert_same(straight(setup), interrupted(setup, stops))


@pytest.mark.parametrize("sampler", [*SAMPLERS, *EXACT_LOADERS])
@pytest.mark.parametrize("kind", ["rows", "held rows"])
def test_samplers_and_loaders_of_the_users_own_are_resumed_in_the_second_epoch(kind, sampler):
    """One epoch has seven updates at least: the third process starts in the second one."""
    setup = Setup(kind, accumulation=2, sampler=sampler, masks=kind == "held rows")
    assert_same(straight(setup), interrupted(setup, [1, 17]))


def test_persistent_workers_of_the_users_own_loader_give_the_same_rows_and_are_named(caplog):
    setup = Setup("plain rows", workers=1, sampler="persistent")
    for stop in (13, 14):  # at the end of the first epoch, of ten updates, and inside the second
        assert_same(straight(setup), interrupted(setup, [stop]))
    assert "DataLoader has persistent_workers=True" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["held rows", "held stream"])
def test_persistent_workers_and_evaluation_are_resumed_exactly(kind):
    setup = Setup(kind, workers=2, persistent=True, masks=True)
    for stop in (2, 3, 4, 13):  # the first evaluation comes after update 3, and is given up once
        assert_same(straight(setup), interrupted(setup, [stop]))


@pytest.mark.parametrize("stop", [12, 23])
def test_a_stop_in_the_first_update_of_an_epoch_keeps_the_generators_of_persistent_workers(stop):
    setup = Setup("held stream", workers=2, accumulation=3, persistent=True)
    assert_same(straight(setup), interrupted(setup, [stop]))


@pytest.mark.parametrize("stores_batch", [True, False])
@pytest.mark.parametrize("stop", range(1, 40))
def test_every_single_place_to_stop_is_exact(stop, stores_batch):
    setup = Setup(accumulation=3, stores_batch=stores_batch)
    assert_same(straight(setup), interrupted(setup, [stop]))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_batches_that_are_copied_ahead_are_the_same_and_resumed_exactly(kind, workers):
    setup = Setup(kind, workers, accumulation=3, stores_batch=kind != "held rows", masks=True)
    ahead = setup._replace(prefetches=True)
    assert_same(straight(setup), straight(ahead))
    assert_same(straight(setup), interrupted(ahead, [4, 9]))


def test_a_sampler_that_draws_as_it_goes_draws_the_same_with_batches_copied_ahead():
    for workers in (0, 2):
        setup = Setup(workers=workers, sampler="lazy")
        assert_same(straight(setup), straight(setup._replace(prefetches=True)))


@pytest.mark.parametrize("stops", [[3, 1], [6, 2], [3, 1, 1]], ids=str)
@pytest.mark.parametrize("stores_batch", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_in_the_first_update_after_a_resume_is_exact(kind, stores_batch, stops):
    setup = Setup(kind, accumulation=3, stores_batch=stores_batch)
    assert_same(straight(setup), interrupted(setup, stops))


def test_any_number_of_workers_delivers_the_same_samples_with_the_same_noise():
    assert_same(straight(Setup(workers=1)), straight(Setup(workers=2)))
