"""A run that is cut short anywhere and resumed is the run that was never cut short, to the last bit."""

from __future__ import annotations

import contextlib
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
from torch.utils.data import IterableDataset

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


KINDS = {
    "rows": lambda: AugmentedRows(NUM_ROWS),
    "stream": lambda: AugmentedStream(NUM_ROWS),
    "bare stream": Bare,
}


class Recorder(Trainer):
    """Notes which samples went into every update that was completed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.seen: list[list[int]] = []
        self.under_way: list[int] = []
        super().__init__(*args, **kwargs)

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


class Setup(NamedTuple):
    kind: str = "rows"
    workers: int = 0
    accumulation: int = 1
    bf16: bool = False
    stores_batch: bool = True  # whether a checkpoint can hold the batch that waits, or must read it again


def collate(samples: list[Any]) -> UserDict[str, Any]:
    """A batch of a type that a checkpoint cannot hold, such as tokenizers give; it draws, as maskers do."""
    batch = UserDict(default_data_collator(samples))
    batch["x"] = batch["x"] + random.random() + float(np.random.rand()) + torch.rand(())
    return batch


def build(folder: str, setup: Setup, *callbacks: TrainerCallback) -> Recorder:
    arguments = tiny.arguments(
        folder,
        max_steps=MAX_STEPS,
        per_device_train_batch_size=3,
        gradient_accumulation_steps=setup.accumulation,
        dataloader_num_workers=setup.workers,
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
    return Recorder(
        Noisy(),
        arguments,
        train_dataset=KINDS[setup.kind](),
        eval_dataset=AugmentedRows(7),
        data_collator=None if setup.stores_batch else collate,
        callbacks=[Flush(), *callbacks],
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
)


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(setups, stops)
def test_a_run_that_is_terminated_anywhere_goes_on_as_if_it_had_not_been(setup, stop):
    assert_same(straight(setup), interrupted(setup, [stop]))


@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(setups, st.lists(stops, min_size=3, max_size=3))
def test_three_resumes_in_a_row_are_exact(setup, stops):
    assert_same(straight(setup), interrupted(setup, stops))


@pytest.mark.parametrize("stores_batch", [True, False])
@pytest.mark.parametrize("stop", range(1, 40))
def test_every_single_place_to_stop_is_exact(stop, stores_batch):
    setup = Setup(accumulation=3, stores_batch=stores_batch)
    assert_same(straight(setup), interrupted(setup, [stop]))


@pytest.mark.parametrize("stops", [[3, 1], [6, 2], [3, 1, 1]], ids=str)
@pytest.mark.parametrize("stores_batch", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_in_the_first_update_after_a_resume_is_exact(kind, stores_batch, stops):
    setup = Setup(kind, accumulation=3, stores_batch=stores_batch)
    assert_same(straight(setup), interrupted(setup, stops))


def test_any_number_of_workers_delivers_the_same_samples_with_the_same_noise():
    assert_same(straight(Setup(workers=1)), straight(Setup(workers=2)))
