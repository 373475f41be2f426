"""The state of every random generator on disk."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from footplate.checkpoint.files import Folder, load_plain, save_plain
from footplate.comm import rank, world_size

logger = logging.getLogger(__name__)


RNG_NAME = "rng_state.pth"


def capture_rng() -> dict[str, Any]:
    """The state of Python's, numpy's, torch's and the accelerator's generator."""
    states: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "cpu": torch.get_rng_state(),
    }
    if torch.accelerator.is_available():
        states[_accelerator_name()] = torch.get_device_module().get_rng_state()
    return states


def restore_rng(states: dict[str, Any]) -> None:
    """Set all generators to what `capture_rng` or a checkpoint gave."""
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["cpu"])
    if torch.accelerator.is_available():
        _load_accelerator(states)


def save_rng(folder: Folder, states: dict[str, Any] | None = None) -> None:
    """Write the generators' states: those given, else those of now."""
    states = dict(states if states is not None else capture_rng())
    kind, key, *rest = states["numpy"]
    states["numpy"] = (kind, np.asarray(key).tolist(), *rest)  # a list: then any safe reader takes the file
    save_plain(states, _rng_file(folder))


def load_rng(folder: Folder) -> bool:
    """Restore all generators; False, and a warning, when the folder has no state for this process."""
    path = _rng_file(folder)
    if not path.is_file():
        logger.warning(
            "%s has no %s, so random numbers will differ from a run that was never interrupted "
            "(each process of a run writes a file of its own).",
            path.parent,
            path.name,
        )
        return False
    restore_rng(load_plain(path))
    return True


def _load_accelerator(states: dict[str, Any]) -> None:
    name = _accelerator_name()
    if name not in states:
        logger.warning("The checkpoint has no random state for %s: it was written on another device.", name)
        return
    torch.get_device_module().set_rng_state(states[name])


def _accelerator_name() -> str:
    accelerator = torch.accelerator.current_accelerator()
    assert accelerator is not None
    return accelerator.type


def _rng_file(folder: Folder) -> Path:
    return Path(folder, RNG_NAME if world_size() == 1 else f"rng_state_{rank()}.pth")
