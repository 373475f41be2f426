"""The settings that a search tries where the user names none, and the number that it compares."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from footplate.search.trial import Trial

BATCH_SIZES = [4, 8, 16, 32, 64]
SPEED_METRICS = ("_runtime", "_per_second")


def default_compute_objective(metrics: Mapping[str, float]) -> float | None:
    """The sum of what `compute_metrics` gave, or the evaluation loss where it gave nothing.

    Args:
        metrics: What `evaluate` returned.
    """
    own = {
        key: value
        for key, value in metrics.items()
        if key not in ("eval_loss", "epoch") and not key.endswith(SPEED_METRICS)
    }
    return sum(own.values()) if own else metrics.get("eval_loss")


def default_hp_space_optuna(trial: Any) -> dict[str, Any]:
    """What an Optuna trial chooses: rate, epochs, seed and batch size.

    Args:
        trial: The trial that draws the values.
    """
    return {
        "learning_rate": trial.suggest_float("learning_rate", 1e-6, 1e-4, log=True),
        "num_train_epochs": trial.suggest_int("num_train_epochs", 1, 5),
        "seed": trial.suggest_int("seed", 1, 40),
        "per_device_train_batch_size": trial.suggest_categorical("per_device_train_batch_size", BATCH_SIZES),
    }


def default_hp_space_ray(trial: Any) -> dict[str, Any]:
    """The same space in the words of Ray Tune.

    Args:
        trial: Not used; the API has it.
    """
    try:
        tune: Any = import_module("ray.tune")
    except ImportError as error:
        raise ImportError("default_hp_space_ray needs Ray Tune: pip install 'ray[tune]'") from error
    return {
        "learning_rate": tune.loguniform(1e-6, 1e-4),
        "num_train_epochs": tune.choice(list(range(1, 6))),
        "seed": tune.uniform(1, 40),
        "per_device_train_batch_size": tune.choice(BATCH_SIZES),
    }


def default_hp_space_wandb(trial: Any) -> dict[str, Any]:
    """The same space as a sweep of Weights & Biases.

    Args:
        trial: Not used; the API has it.
    """
    return {
        "method": "random",
        "metric": {"name": "objective", "goal": "minimize"},
        "parameters": {
            "learning_rate": {"distribution": "uniform", "min": 1e-6, "max": 1e-4},
            "num_train_epochs": {"distribution": "int_uniform", "min": 1, "max": 6},
            "seed": {"distribution": "int_uniform", "min": 1, "max": 40},
            "per_device_train_batch_size": {"values": BATCH_SIZES},
        },
    }


def hp_params(trial: Any) -> dict[str, Any]:
    """The values that a trial has chosen.

    Args:
        trial: A trial of Optuna or of ours, or the dictionary that Ray Tune and sweeps hand over.
    """
    optuna = sys.modules.get("optuna")  # if Optuna is not imported, it made no trial
    if optuna is not None and isinstance(trial, optuna.trial.BaseTrial):
        return dict(trial.params)
    if isinstance(trial, dict):
        return trial
    if isinstance(trial, Trial):
        return dict(trial.params)
    raise RuntimeError(f"A trial of type {type(trial).__name__} is not known; give Optuna's or a dictionary.")
