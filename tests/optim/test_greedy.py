from __future__ import annotations

import inspect
import random

import pytest
from transformers import optimization as original

from footplate.optim.greedy import GreedyLR, StreamingAverage

SETTINGS = {
    "default": {},
    "impatient": {"patience": 1, "factor": 0.5, "min_lr": 1e-4},
    "max": {"mode": "max", "patience": 2, "min_lr": 1e-4},
    "relative": {"threshold_mode": "rel", "threshold": 0.05, "patience": 1, "min_lr": 1e-4},
    "relative max": {
        "mode": "max",
        "threshold_mode": "rel",
        "threshold": 0.05,
        "patience": 0,
        "min_lr": 1e-4,
    },
    "waiting": {"patience": 0, "cooldown": 2, "warmup": 3, "min_lr": 1e-4},
    "smooth": {"smooth": True, "window_size": 4, "patience": 1, "min_lr": 1e-4},
    "bounds per group": {"min_lr": [0.01, 0.001], "max_lr": [0.06, 0.03], "patience": 0, "factor": 0.7},
    "starting anew": {
        "patience": 0,
        "factor": 0.5,
        "min_lr": 0.02,
        "max_lr": 0.06,
        "reset_start": 2,
        "smooth": True,
    },
    "large steps only": {"patience": 0, "eps": 0.0012, "min_lr": 1e-4},
}


def metrics(seed, count=120):
    draw = random.Random(seed)
    falling = [1.0 / (1 + index) + 0.05 * draw.random() for index in range(count // 2)]
    return falling + [draw.random() + index / 50 for index in range(count // 2)]


@pytest.mark.parametrize("setting", SETTINGS)
def test_rates_and_state_are_the_originals(make_optimizer, setting):
    for seed in range(4):
        ours = GreedyLR(make_optimizer(0.05, 0.02), **SETTINGS[setting])
        theirs = original.GreedyLR(make_optimizer(0.05, 0.02), **SETTINGS[setting])
        seen = set()
        for metric in metrics(seed):
            ours.step(metric)
            theirs.step(metric)
            assert ours.get_last_lr() == theirs.get_last_lr()
            assert ours.state_dict() == theirs.state_dict()
            seen.add(ours.get_last_lr()[0])
        assert len(seen) > 2


@pytest.mark.parametrize("setting", SETTINGS)
def test_state_loads_into_the_originals_and_back(make_optimizer, setting):
    classes = (GreedyLR, original.GreedyLR)
    for saving, loading in (classes, classes[::-1]):
        first = saving(make_optimizer(0.05, 0.02), **SETTINGS[setting])
        for metric in metrics(1, 40):
            first.step(metric)
        second = loading(make_optimizer(0.05, 0.02))
        second.load_state_dict(first.state_dict())
        assert [group["lr"] for group in second.optimizer.param_groups] == first.get_last_lr()
        for metric in metrics(2, 40):
            first.step(metric)
            second.step(metric)
            assert first.get_last_lr() == second.get_last_lr()


def test_parameters_and_defaults_are_the_originals():
    def shape(function):
        return [(key, value.default) for key, value in inspect.signature(function).parameters.items()]

    assert shape(GreedyLR) == shape(original.GreedyLR)
    assert shape(GreedyLR.step) == shape(original.GreedyLR.step)


def test_the_number_of_the_evaluation_can_be_given(make_optimizer):
    schedule = GreedyLR(make_optimizer(0.05))
    schedule.step(1.0, epoch=7)
    schedule.step(0.9)
    assert schedule.last_epoch == 8


def test_changes_are_printed_when_asked_for(make_optimizer, capsys):
    schedule = GreedyLR(make_optimizer(0.05), patience=0, verbose=True)
    schedule.step(1.0)
    assert "Evaluation 1: learning rate of group 0 is now 5.2632e-02." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"factor": 1.0}, r"factor=1\.0 must be below 1"),
        ({"mode": "best"}, "mode='best' is not 'min' or 'max'"),
        ({"threshold_mode": "both"}, "threshold_mode='both' is not 'rel' or 'abs'"),
        ({"min_lr": [0.1, 0.2]}, "min_lr has 2 values for 1 parameter groups"),
    ],
)
def test_wrong_settings_name_lr_scheduler_kwargs(make_optimizer, options, message):
    with pytest.raises(ValueError, match=message + ".*lr_scheduler_kwargs"):
        GreedyLR(make_optimizer(0.05), **options)


def test_something_that_is_no_optimizer_is_refused():
    with pytest.raises(TypeError, match="str is not an Optimizer"):
        GreedyLR("sgd")


def test_a_lowest_rate_above_the_learning_rate_is_mentioned(make_optimizer, caplog):
    GreedyLR(make_optimizer(0.05))
    assert not caplog.records
    GreedyLR(make_optimizer(5e-5))
    assert "set a smaller min_lr in lr_scheduler_kwargs" in caplog.text


def test_the_streaming_average_forgets_old_values():
    average = StreamingAverage(2)
    assert [average.streamavg(value) for value in (1.0, 3.0, 5.0)] == [1.0, 2.0, 4.0]
    other = StreamingAverage(9)
    other.load_state_dict(average.state_dict())
    assert other.streamavg(7.0) == average.streamavg(7.0) == 6.0
