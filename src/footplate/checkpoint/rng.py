"""Save and load the states of all random generators."""

from __future__ import annotations

import logging
from pathlib import Path

from footplate import rng
from footplate.checkpoint.files import Folder, load_plain, save_plain
from footplate.comm import rank, world_size

logger = logging.getLogger(__name__)

RNG_NAME = "rng_state.pth"


def save_rng(folder: Folder, states: rng.RandomStates | None = None) -> None:
    """Write the given states, or the current states of the generators."""
    save_plain(rng.to_plain(states if states is not None else rng.capture()), _rng_file(folder))


def load_rng(folder: Folder) -> bool:
    """Restore all generators; False, with a warning, if the folder has no state for this process."""
    path = _rng_file(folder)
    if not path.is_file():
        logger.warning(
            "%s has no %s, so random numbers will differ from a run that was never interrupted "
            "(each process of a run writes a file of its own).",
            path.parent,
            path.name,
        )
        return False
    rng.restore(load_plain(path))
    return True


def _rng_file(folder: Folder) -> Path:
    return Path(folder, RNG_NAME if world_size() == 1 else f"rng_state_{rank()}.pth")
