"""The helper for tests: silent about exact resumes, and clear about the first thing that differs."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import footplate
import tiny
from footplate.testing import assert_resume_is_exact, find_difference, read_outcome


class Dropped(nn.Module):
    """A small model with dropout and random first weights."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.5), nn.Linear(8, 1))

    def forward(self, x, labels):
        loss = (self.layers(x[:, None])[:, 0] - labels).square().mean()
        return {"loss": loss}


def builder(callbacks=(), **settings):
    def build(folder):
        often = {"logging_steps": 1, "num_train_epochs": 2, "save_strategy": "no", **settings}
        args = tiny.arguments(folder, per_device_train_batch_size=4, **often)
        made = [callback() for callback in callbacks]
        return footplate.Trainer(Dropped(), args, train_dataset=tiny.regression_data(22), callbacks=made)

    return build


@pytest.mark.parametrize("stop_at", [None, 1, 6, 11])
def test_an_exact_resume_passes(stop_at, tmp_path):
    assert_resume_is_exact(builder(), tmp_path, stop_at=stop_at)


def test_it_passes_with_accumulation_and_epochs_that_log_and_save(tmp_path):
    build = builder(gradient_accumulation_steps=2, logging_strategy="epoch", save_strategy="epoch")
    assert_resume_is_exact(build, tmp_path, stop_at=2)


class ForgetsItsCount(footplate.TrainerCallback):
    """Makes the rate depend on something that no checkpoint holds."""

    def __init__(self):
        self.count = 0

    def on_pre_optimizer_step(self, args, state, control, optimizer, **kwargs):
        self.count += 1
        for group in optimizer.param_groups:
            group["weight_decay"] = 0.01 * self.count


def test_a_difference_in_the_weights_is_named(tmp_path):
    with pytest.raises(
        AssertionError, match=r"Interrupted after update 6 and resumed, log entry \d+ \(update"
    ):
        assert_resume_is_exact(builder([ForgetsItsCount]), tmp_path)


class Counts(footplate.TrainerCallback):
    def __init__(self):
        self.count = 0

    def on_log(self, args, state, control, logs, **kwargs):
        self.count += 1
        state.log_history[-1]["count"] = self.count


def test_a_difference_in_the_log_is_named_with_its_update(tmp_path):
    words = r"log entry 6 \(update 7\), count: it is 1, and 7 in the straight run"
    with pytest.raises(AssertionError, match=words):
        assert_resume_is_exact(builder([Counts]), tmp_path)


@pytest.mark.parametrize("stop_at", [0, 12, 100])
def test_an_interruption_outside_the_run_is_refused(stop_at, tmp_path):
    with pytest.raises(ValueError, match="is not inside the run of 12 updates"):
        assert_resume_is_exact(builder(), tmp_path, stop_at=stop_at)


class SavesNothing(footplate.Trainer):
    def _maybe_log_save_evaluate(self, *args, **kwargs):
        self.control.should_save = False
        super()._maybe_log_save_evaluate(*args, **kwargs)


def test_a_run_that_cannot_be_interrupted_fails_in_words(tmp_path):
    def build(folder):
        args = tiny.arguments(folder, max_steps=4, save_strategy="no")
        return SavesNothing(tiny.Regression(), args, train_dataset=tiny.regression_data(8))

    with pytest.raises(AssertionError, match="was not interrupted"):
        assert_resume_is_exact(build, tmp_path)


# ---- what differs first ----


@pytest.fixture
def outcome(tmp_path):
    trainer = builder()(str(tmp_path))
    trainer.train()
    return read_outcome(trainer)


def test_an_outcome_equals_itself_and_time_does_not_count(outcome):
    other = copy.deepcopy(outcome)
    assert other["log_history"][-1].pop("train_runtime") > 0
    other["log_history"][-1]["train_samples_per_second"] += 1
    assert find_difference(outcome, other) is None


def flip_one_bit(tensor):
    tensor.view(-1)[:1].view(torch.int32).bitwise_xor_(1)


CHANGES = {
    "the weights, layers.0.weight: 1 of 8 values differ, by up to": lambda other: flip_one_bit(
        other["weights"]["layers.0.weight"]
    ),
    "the optimizer's state, state, 2, exp_avg: 1 of": lambda other: flip_one_bit(
        other["optimizer"]["state"][2]["exp_avg"]
    ),
    "the optimizer's state, param_groups, 1, lr: it is": lambda other: other["optimizer"]["param_groups"][
        1
    ].update(lr=7.0),
    "the schedule's state, last_epoch: it is 3, and 12": lambda other: other["schedule"].update(last_epoch=3),
    "the state of the random generators, cpu: ": lambda other: other["generators"]["cpu"].add_(1),
    "the weights: only one of the runs has 'extra'": lambda other: other["weights"].update(extra=1),
    "global_step: it is 5, and 12": lambda other: other.update(global_step=5),
    "the log has 12 entries, and 13 in the straight run": lambda other: other["log_history"].pop(),
    "log entry 2 (update 3), loss: it is nan, and": lambda other: other["log_history"][2].update(
        loss=float("nan")
    ),
    "the weights, layers.0.bias: it is torch.float64 of shape (8,), and torch.float32": lambda other: other[
        "weights"
    ].update({"layers.0.bias": other["weights"]["layers.0.bias"].double()}),
}


@pytest.mark.parametrize("words", CHANGES)
def test_the_first_difference_is_named(words, outcome):
    other = copy.deepcopy(outcome)
    CHANGES[words](other)
    assert words in find_difference(outcome, other)


def test_equal_values_that_are_no_numbers_are_equal(outcome):
    other = copy.deepcopy(outcome)
    for both in (outcome, other):
        both["log_history"][0]["loss"] = float("nan")
        both["weights"]["layers.0.bias"][0] = float("nan")
    assert find_difference(outcome, other) is None
