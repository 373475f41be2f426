"""What a checkpoint holds of data: plain copies of the states of datasets and samplers."""

from __future__ import annotations

import logging
from typing import Any

import torch

logger = logging.getLogger(__name__)

_LEAVES = (type(None), bool, int, float, complex, str, bytes)
_told: set[str] = set()


def plain_copy(value: Any) -> Any:
    """A copy of nested plain values and tensors; TypeError for what could not be read back safely."""
    if type(value) in _LEAVES:
        return value
    if type(value) in (list, tuple):
        return type(value)(plain_copy(entry) for entry in value)
    if isinstance(value, dict):
        return {plain_copy(key): plain_copy(entry) for key, entry in value.items()}
    if type(value) is torch.Tensor:
        return value.detach().clone()
    raise TypeError(f"{type(value).__module__}.{type(value).__qualname__}")


def is_plain(value: Any) -> bool:
    """Whether `plain_copy` gives back the same types: of mappings, only a dict itself does."""
    if type(value) in (list, tuple):
        return all(map(is_plain, value))
    if type(value) is dict:
        return all(map(is_plain, value)) and all(map(is_plain, value.values()))
    return type(value) is torch.Tensor or type(value) in _LEAVES


def has_state(holder: Any) -> bool:
    """Whether something can tell its state and be put back into it."""
    return hasattr(holder, "state_dict") and hasattr(holder, "load_state_dict")


def find_state(holder: Any) -> Any:
    """A copy of what `state_dict` says, or None, and a warning, if a checkpoint could not hold it safely."""
    state = holder.state_dict()  # outside: an error in the user's code is not one of ours
    try:
        return plain_copy(state)
    except TypeError as error:
        name = type(holder).__name__
        if name not in _told:
            _told.add(name)
            logger.warning(
                "The state of %s holds a %s, which a checkpoint cannot store safely: a resumed run will read "
                "its way to the position instead. Let state_dict() return numbers, strings, lists, dicts and "
                "tensors.",
                name,
                error,
            )
        return None
