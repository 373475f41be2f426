"""Tests of when to log, evaluate, save and stop, against the original over grids of settings."""

import itertools
from types import SimpleNamespace

import pytest
import transformers

from footplate.callbacks.flow import DefaultFlowCallback
from footplate.outputs import IntervalStrategy, SaveStrategy
from footplate.state import TrainerControl, TrainerState

MAX_STEPS = 7


def flags(control):
    return control.state()["args"]


def settings_grid():
    names = ("logging_first_step", "logging_strategy", "eval_strategy", "save_strategy", "eval_delay")
    choices = (
        [False, True],
        list(IntervalStrategy),
        list(IntervalStrategy),
        list(SaveStrategy),
        [0, 2, 2.5, 100],
    )
    return [
        SimpleNamespace(**dict(zip(names, values, strict=True))) for values in itertools.product(*choices)
    ]


@pytest.mark.parametrize("interval", [1, 2, 3, 7, 10])
def test_flags_after_every_step_are_those_of_the_original(interval):
    for args, step in itertools.product(settings_grid(), range(1, MAX_STEPS + 2)):
        numbers = {"global_step": step, "max_steps": MAX_STEPS, "epoch": step / 3}
        numbers |= {"logging_steps": interval, "eval_steps": max(1, interval - 1), "save_steps": interval + 1}
        ours, theirs = TrainerControl(), transformers.TrainerControl()
        ours = DefaultFlowCallback().on_step_end(args, TrainerState(**numbers), ours)
        theirs = transformers.DefaultFlowCallback().on_step_end(args, TrainerState(**numbers), theirs)
        assert flags(ours) == flags(theirs), (args, step)


def test_flags_after_every_epoch_are_those_of_the_original():
    for args, epoch in itertools.product(settings_grid(), [0.5, 1, 2, 2.5, 3.0]):
        state = TrainerState(epoch=epoch, global_step=4, max_steps=8)
        ours = DefaultFlowCallback().on_epoch_end(args, state, TrainerControl())
        theirs = transformers.DefaultFlowCallback().on_epoch_end(args, state, transformers.TrainerControl())
        assert flags(ours) == flags(theirs), (args, epoch)


def test_flags_that_are_set_stay_set():
    args = SimpleNamespace(
        logging_first_step=False,
        logging_strategy="no",
        eval_strategy="steps",
        save_strategy="steps",
        eval_delay=0,
    )
    control = TrainerControl(True, True, True, True, True)
    control = DefaultFlowCallback().on_step_end(args, TrainerState(global_step=3, max_steps=9), control)
    assert all(flags(control).values())


def test_strategies_may_be_plain_strings_and_saving_may_be_off():
    args = SimpleNamespace(
        logging_first_step=False,
        logging_strategy="steps",
        eval_strategy="no",
        save_strategy="steps",
        eval_delay=0,
    )
    state = TrainerState(global_step=4, max_steps=9, logging_steps=2, save_steps=0)
    control = DefaultFlowCallback().on_step_end(args, state, TrainerControl())
    assert (control.should_log, control.should_save, control.should_evaluate) == (True, False, False)


@pytest.mark.parametrize("event", ["on_step_end", "on_epoch_end"])
def test_saving_the_best_is_left_to_the_evaluation(event):
    args = SimpleNamespace(
        logging_first_step=True,
        logging_strategy="steps",
        eval_strategy="steps",
        save_strategy="best",
        eval_delay=0,
    )
    control = getattr(DefaultFlowCallback(), event)(
        args, TrainerState(global_step=9, max_steps=9), TrainerControl()
    )
    assert not control.should_save
