"""The state of optimizer, schedule and gradient scaler on disk."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Protocol

from footplate.checkpoint.files import Folder, load_plain, save_plain

OPTIMIZER_NAME = "optimizer.pt"
SCHEDULER_NAME = "scheduler.pt"
SCALER_NAME = "scaler.pt"

logger = logging.getLogger(__name__)


class Stateful(Protocol):
    """Anything that can return its state as a dictionary and load it again."""

    def state_dict(self) -> dict[str, Any]:
        """The state."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any:
        """Load the state."""


def save_optimizer(optimizer: Stateful, folder: Folder) -> None:
    """Write the optimizer's state."""
    save_plain(optimizer.state_dict(), Path(folder, OPTIMIZER_NAME))


def load_optimizer(optimizer: Stateful, folder: Folder) -> bool:
    """Restore the optimizer; False, with a warning, if the folder has no state for it."""
    return _load_state(optimizer, Path(folder, OPTIMIZER_NAME), "optimizer")


def save_schedule(schedule: Stateful, folder: Folder) -> None:
    """Write the learning-rate schedule's state."""
    save_plain(schedule.state_dict(), Path(folder, SCHEDULER_NAME))


def load_schedule(schedule: Stateful, folder: Folder) -> bool:
    """Restore the schedule; False, with a warning, if the folder has no state for it."""
    return _load_state(schedule, Path(folder, SCHEDULER_NAME), "learning-rate schedule")


def load_both(optimizer: Any, schedule: Any, folder: Folder) -> None:
    """Restore optimizer and schedule; one that is missing starts from the beginning, with a warning."""
    has_optimizer = load_optimizer(optimizer, folder)
    if load_schedule(schedule, folder) and not has_optimizer and hasattr(schedule, "get_last_lr"):
        # the rates are in the file of the optimizer, and a schedule sets them only after the next update
        for group, rate in zip(optimizer.param_groups, schedule.get_last_lr(), strict=False):
            group["lr"] = rate


def save_scaler(scaler: Stateful, folder: Folder) -> None:
    """Write the gradient scaler's state."""
    save_plain(scaler.state_dict(), Path(folder, SCALER_NAME))


def load_scaler(scaler: Stateful, folder: Folder) -> bool:
    """Restore the gradient scaler; False, with a warning, if the folder has no state for it."""
    return _load_state(scaler, Path(folder, SCALER_NAME), "gradient scaler")


def _load_state(target: Stateful, path: Path, what: str) -> bool:
    if not path.is_file():
        logger.warning(
            "%s has no %s, so the %s starts from the beginning (save_only_model=True does not save it).",
            path.parent,
            path.name,
            what,
        )
        return False
    state = load_plain(path)
    try:
        target.load_state_dict(state)
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ValueError(
            f"{path} does not fit this {what} ({type(target).__name__}): {error}. Resume with the model "
            f"and settings that wrote it, or remove the file to start the {what} from the beginning."
        ) from error
    return True
