"""What a checkpoint holds of data: plain copies of states, and the generators a sampler draws from."""

from __future__ import annotations

import copy
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
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


def has_state(holder: Any) -> bool:
    """Whether something can tell its state and be put back into it."""
    return hasattr(holder, "state_dict") and hasattr(holder, "load_state_dict")


def find_state(holder: Any) -> Any:
    """A copy of what `state_dict` says, or None, and a warning, if a checkpoint could not hold it safely."""
    try:
        return plain_copy(holder.state_dict())
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


def save_generators(own: torch.Generator | None = None) -> dict[str, Any]:
    """The states of Python's, numpy's and torch's global generators, and of one more."""
    kind, key, *rest = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": (kind, np.asarray(key).tolist(), *rest),
        "torch": torch.get_rng_state(),
        "own": None if own is None else own.get_state(),
    }


@contextmanager
def generators_at(states: dict[str, Any] | None, own: torch.Generator | None = None) -> Iterator[None]:
    """Run on generators as they were saved; afterwards all but `own` go on as if nothing had been."""
    before = save_generators()
    if states is not None:
        _load_generators(states)
        if own is not None and states["own"] is not None:
            own.set_state(copy.copy(states["own"]))
    try:
        yield
    finally:
        _load_generators(before)


def _load_generators(states: dict[str, Any]) -> None:
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch"])
