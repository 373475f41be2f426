from __future__ import annotations

from random import Random
from typing import Any

import pytest

from footplate.search.spaces import default_hp_space_wandb
from footplate.search.wandb_sweep import build_sweep
from search.wandb_service import draw_value


def test_a_dictionary_becomes_parameters_of_the_same_values() -> None:
    space = {
        "learning_rate": {"low": "1e-5", "high": 1e-3, "log": True},  # YAML gives a text
        "weight_decay": {"low": 0.0, "high": 0.3},
        "num_train_epochs": {"low": 1, "high": 3},
        "warmup_steps": {"low": 10, "high": 50, "step": 20},
        "adam_beta2": {"low": 0.9, "high": 1.0, "step": 0.05},
        "max_steps": {"low": 1, "high": 100, "log": True},
        "optim_args.eps": [1e-8, 1e-6],
        "seed": 7,
    }
    sweep = build_sweep(space, ["maximize"], "eval/accuracy", "mine")
    assert (sweep["method"], sweep["name"]) == ("random", "mine")
    assert sweep["metric"] == {"name": "eval/accuracy", "goal": "maximize"}
    generator = Random(0)
    drawn = {
        name: [draw_value(entry, generator) for _ in range(300)]
        for name, entry in sweep["parameters"].items()
    }
    assert all(1e-5 <= value <= 1e-3 for value in drawn["learning_rate"])
    assert sum(value < 1e-4 for value in drawn["learning_rate"]) > 100  # as many below as above
    assert 0 <= min(drawn["weight_decay"]) < max(drawn["weight_decay"]) <= 0.3
    assert set(drawn["num_train_epochs"]) == {1, 2, 3}
    assert set(drawn["warmup_steps"]) == {10, 30, 50}
    assert sorted(set(drawn["adam_beta2"])) == pytest.approx([0.9, 0.95, 1.0])
    assert {type(value) for value in drawn["max_steps"]} == {int}
    assert set(drawn["optim_args.eps"]) == {1e-8, 1e-6}
    assert set(drawn["seed"]) == {7}


def test_a_sweep_of_the_users_own_keeps_everything_but_the_objective() -> None:
    own = {
        "method": "bayes",
        "metric": {"name": "objective", "goal": "minimize", "target": 0.9},
        "parameters": {"seed": {"values": [1, 2]}},
        "early_terminate": {"type": "hyperband", "min_iter": 3},
    }
    for space in (own, lambda trial: own):
        sweep = build_sweep(space, ["maximize"], "eval/f1")
        metric = {"name": "eval/f1", "goal": "maximize", "target": 0.9}
        assert sweep == {**own, "metric": metric}
    assert own["metric"] == {"name": "objective", "goal": "minimize", "target": 0.9}


def test_without_a_space_it_is_the_default_and_without_a_metric_the_objective() -> None:
    sweep = build_sweep(None, ["minimize"])
    assert sweep == default_hp_space_wandb(None)
    assert sweep["metric"] == {"name": "objective", "goal": "minimize"}


@pytest.mark.parametrize(
    ("space", "directions", "message"),
    [
        (lambda trial: {"seed": trial.suggest_int("seed", 1, 4)}, ["minimize"], "was called with None"),
        (lambda trial: {"seed": [1, 2]}, ["minimize"], r"hp_space\(None\) returned .* is no sweep"),
        (["seed"], ["minimize"], r"hp_space=\['seed'\], which is no sweep"),
        ({}, ["minimize"], "is no sweep"),
        ({"seed": {"min": 1, "max": 2}}, ["minimize"], "'low' and 'high'"),
        ({"seed": {"low": 3, "high": 2}}, ["minimize"], "Give the smaller one first"),
        ({"seed": {"low": 0, "high": 10**6, "step": 2}}, ["minimize"], "more than 1000 values"),
        ({"seed": [1]}, ["minimize", "maximize"], "a sweep of W&B has one"),
    ],
)
def test_what_is_no_sweep_is_refused(space: Any, directions: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_sweep(space, directions)
