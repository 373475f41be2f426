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
    path = Path(folder, rng_name(rank(), world_size()))
    save_plain(rng.to_plain(states if states is not None else rng.capture()), path)


def load_rng(folder: Folder) -> bool:
    """Restore all generators; False, with a warning, if the folder has no state for this process."""
    # another number of processes may have written it: all began with the same seed, so any will do
    names = (rng_name(rank(), world_size()), RNG_NAME, rng_name(0, 2))
    path = next((file for name in names if (file := Path(folder, name)).is_file()), None)
    if path is None:
        logger.warning(
            "%s has no %s, so random numbers will differ from a run that was never interrupted.",
            folder,
            names[0],
        )
        return False
    rng.restore(load_plain(path))
    return True


def rng_name(rank: int, num_ranks: int) -> str:
    """The file of one process, as the original names it."""
    return RNG_NAME if num_ranks == 1 else f"rng_state_{rank}.pth"
