"""A space that is written as a dictionary: names with values or ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Space = Callable[[Any], Mapping[str, Any]]

RANGE_KEYS = {"low", "high", "step", "log"}
EXAMPLE = "{'learning_rate': {'low': 1e-5, 'high': 1e-3, 'log': True}, 'seed': [1, 2, 3]}"


def build_space(given: Any) -> Space:
    """The space as a function of a trial.

    Args:
        given: A function of a trial, or a dictionary of names. A list or tuple holds the values of a name; a
            dictionary with `low` and `high`, and perhaps `step` and `log`, a range; a single value is always
            taken.
    """
    if callable(given):
        return given  # type: ignore[no-any-return]
    if not isinstance(given, Mapping) or not given:
        raise ValueError(
            f"hp_space={given!r} is no space. Give a function of a trial, or a dictionary: {EXAMPLE}"
        )
    entries = {str(name): check_entry(str(name), entry) for name, entry in given.items()}
    return lambda trial: {name: choose(trial, name, entry) for name, entry in entries.items()}


def check_entry(name: str, entry: Any) -> Any:
    """The entry of a name with its numbers read; refuses what is no range and no list of values."""
    if isinstance(entry, Mapping):
        unknown = sorted(set(map(str, entry)) - RANGE_KEYS)
        if unknown or not {"low", "high"} <= set(entry):
            raise ValueError(
                f"The space has {name}: {dict(entry)!r}. A range has 'low' and 'high', and perhaps 'step' "
                "and 'log'; single values stand in a list."
            )
        return {key: value if key == "log" else read_number(name, value) for key, value in entry.items()}
    if isinstance(entry, range) or (isinstance(entry, Sequence) and not isinstance(entry, str)):
        if not len(entry):
            raise ValueError(f"The space has {name}: {entry!r}. Give at least one value.")
        return list(entry)
    return entry


def read_number(name: str, value: Any) -> Any:
    """A number; YAML gives `1e-5` as text."""
    try:
        return float(value) if isinstance(value, str) else value + 0
    except (TypeError, ValueError):
        raise ValueError(f"The space has {value!r} in the range of {name}. Give a number.") from None


def choose(trial: Any, name: str, entry: Any) -> Any:
    """The value of one name, as the trial chooses it."""
    if isinstance(entry, list):
        return trial.suggest_categorical(name, entry)
    if not isinstance(entry, dict):
        return entry
    low, high, step, log = entry["low"], entry["high"], entry.get("step"), bool(entry.get("log", False))
    if all(isinstance(number, int) for number in (low, high, 1 if step is None else step)):
        return trial.suggest_int(name, low, high, step=1 if step is None else step, log=log)
    return trial.suggest_float(name, low, high, step=step, log=log)
