"""Values on their way to a tracker: the last ones, plain ones, and those that a method asks for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def final_metrics(history: list[dict[str, Any]]) -> dict[str, Any]:
    """The last value of everything that was logged."""
    return {key: value for entry in history for key, value in entry.items() if key != "step"}


def declared_by(method: Callable[..., Any], values: dict[str, Any]) -> dict[str, Any]:
    """The values that a method takes by name: an old `setup(self, args, state, model)` takes none."""
    parameters = inspect.signature(method).parameters.values()
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    names = {parameter.name for parameter in parameters}
    return {name: value for name, value in values.items() if takes_all or name in names}


def to_plain(value: Any) -> Any:
    """Arrays and tensors of one number as that number."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value
