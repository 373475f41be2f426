"""A space in the words of Weights & Biases: the configuration of a sweep."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from footplate.search.ranges import check_entry
from footplate.search.spaces import default_hp_space_wandb
from footplate.search.trial import Domain

OBJECTIVE_KEY = "objective"  # a run's own name for what trials are compared by
MAX_VALUES = 1000  # of a range with a step, which W&B gets as a list
EXAMPLE = "{'method': 'bayes', 'parameters': {'learning_rate': {'min': 1e-5, 'max': 1e-3}}}"


def build_sweep(
    space: Any, directions: list[str], metric: str | None = None, name: str | None = None
) -> dict[str, Any]:
    """The configuration of a sweep.

    Args:
        space: A function that returns the configuration when it is called with None, the configuration
            itself, or a dictionary of names with values and ranges as the other backends take it; None for
            the default space.
        directions: "minimize" or "maximize", for the one objective.
        metric: The name that the objective has in the runs; default: "objective".
        name: The name of the sweep.
    """
    if len(directions) != 1:
        raise ValueError(
            f"direction={directions!r} names {len(directions)} objectives, and a sweep of W&B has one. Give "
            "one direction, or use backend='optuna'."
        )
    sweep = copy.deepcopy(read_space(default_hp_space_wandb if space is None else space))
    sweep.setdefault("method", "random")
    given = sweep.get("metric")
    given = given if isinstance(given, dict) else {}
    sweep["metric"] = {**given, "name": metric or OBJECTIVE_KEY, "goal": directions[0]}
    if name:
        sweep["name"] = name
    return sweep


def read_space(space: Any) -> dict[str, Any]:
    """The space as a sweep; refuses what is none."""
    try:
        found = space(None) if callable(space) else space
    except AttributeError as error:  # a function that asks a trial of Optuna for values
        raise ValueError(
            f"hp_space was called with None, as backend='wandb' does, and failed: {error}. Let it return "
            f"{EXAMPLE}, or give a dictionary of lists and ranges."
        ) from error
    if isinstance(found, Mapping) and isinstance(found.get("parameters"), Mapping):
        return dict(found)
    if callable(space) or not isinstance(found, Mapping) or not found:
        given = f"hp_space(None) returned {found!r}" if callable(space) else f"hp_space={found!r}"
        raise ValueError(f"{given}, which is no sweep. Give {EXAMPLE}, or a dictionary of lists and ranges.")
    entries = {str(key): check_entry(str(key), entry) for key, entry in found.items()}
    return {"parameters": {key: describe_entry(key, entry) for key, entry in entries.items()}}


def describe_entry(name: str, entry: Any) -> dict[str, Any]:
    """A list, a range or a single value, as a parameter of a sweep."""
    if isinstance(entry, list):
        return {"values": entry}
    if not isinstance(entry, dict):
        return {"value": entry}
    low, high, step, log = entry["low"], entry["high"], entry.get("step"), bool(entry.get("log", False))
    is_whole = all(isinstance(number, int) for number in (low, high, 1 if step is None else step))
    domain = Domain(name, None, low, high, step, log, is_whole)  # refuses what no range can be
    if log:
        bounds = {"min": low, "max": high}
        if is_whole:
            return {"distribution": "q_log_uniform_values", **bounds, "q": 1}
        return {"distribution": "log_uniform_values", **bounds}
    if step is None or (is_whole and step == 1):
        return {"distribution": "int_uniform" if is_whole else "uniform", "min": low, "max": high}
    if (high - low) / step > MAX_VALUES:
        raise ValueError(
            f"{name} has more than {MAX_VALUES} values from {low} to {high}. Give a larger step, or none."
        )
    return {"values": domain.list_values()}  # W&B's own steps do not begin at the low end
