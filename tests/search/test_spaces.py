"""What a search tries and compares where the user says nothing."""

from __future__ import annotations

import pytest
import transformers.trainer_utils as original

from footplate.search.spaces import (
    default_compute_objective,
    default_hp_space_optuna,
    default_hp_space_wandb,
    hp_params,
)

METRICS = {"eval_loss": 2.0, "epoch": 1.0, "eval_runtime": 3.0, "eval_samples_per_second": 9.0}


@pytest.mark.parametrize("metrics", [METRICS, {**METRICS, "eval_f1": 0.5, "eval_em": 0.25}, {"epoch": 1.0}])
def test_the_objective_is_that_of_the_original(metrics):
    assert default_compute_objective(metrics) == original.default_compute_objective(dict(metrics))


class Trial:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[object, ...], dict[str, object]]] = []

    def __getattr__(self, kind: str):
        return lambda name, *args, **kwargs: self.asked.append((f"{kind} {name}", args, kwargs))


def test_the_spaces_are_those_of_the_original(monkeypatch):
    ours, theirs = Trial(), Trial()
    monkeypatch.setattr("transformers.integrations.is_optuna_available", lambda: True)
    assert default_hp_space_optuna(ours).keys() == original.default_hp_space_optuna(theirs).keys()
    assert ours.asked == theirs.asked
    assert len(ours.asked) == 4
    assert default_hp_space_wandb(None) == original.default_hp_space_wandb(None)


def test_a_trial_gives_its_values():
    assert hp_params({"learning_rate": 1.0}) == {"learning_rate": 1.0}
    with pytest.raises(RuntimeError, match="type int"):
        hp_params(3)
