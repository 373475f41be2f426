"""Which checkpoints a folder has, and which of them go."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Collection
from pathlib import Path

from footplate.checkpoint.files import Folder

PREFIX_CHECKPOINT_DIR = "checkpoint"

logger = logging.getLogger(__name__)


def find_checkpoints(folder: Folder) -> list[Path]:
    """The checkpoints in `folder`, oldest first by their step."""
    if not Path(folder).is_dir():
        return []
    steps = {path: _find_step(path) for path in Path(folder).iterdir()}
    found = [(step, path) for path, step in steps.items() if step is not None and path.is_dir()]
    return [path for _, path in sorted(found)]


def find_last_checkpoint(folder: Folder) -> str | None:
    """The checkpoint with the highest step, as a path; None where there is none.

    Args:
        folder: The `output_dir` of a run.
    """
    checkpoints = find_checkpoints(folder)
    return os.path.join(os.fspath(folder), checkpoints[-1].name) if checkpoints else None


get_last_checkpoint = find_last_checkpoint


def rotate_checkpoints(folder: Folder, limit: int | None, keep: Collection[str] = ()) -> list[Path]:
    """Remove the oldest checkpoints beyond `limit`, never the newest nor one in `keep`; returns them."""
    if limit is None or limit <= 0:
        return []
    _remove_leftovers(Path(folder))
    checkpoints = find_checkpoints(folder)
    # by name, not by path: after a folder has moved, the best one is still the best one
    protected = {Path(path).name for path in keep} | {path.name for path in checkpoints[-1:]}
    removable = [path for path in checkpoints if path.name not in protected]
    num_surplus = max(0, len(checkpoints) - limit)
    return [path for path in removable[:num_surplus] if _remove(path)]


def _find_step(path: Path) -> int | None:
    match = re.fullmatch(rf"{PREFIX_CHECKPOINT_DIR}-(\d+)", path.name)
    return int(match[1]) if match else None


def _remove(checkpoint: Path) -> bool:
    """Hide the folder under another name, then delete it: half a checkpoint is never seen as one."""
    hidden = checkpoint.with_name(f".{checkpoint.name}.removing")
    try:
        checkpoint.rename(hidden)
    except OSError as error:
        logger.warning("%s is beyond save_total_limit but cannot be removed: %s", checkpoint, error)
        return False
    _delete(hidden)
    return True


def _remove_leftovers(folder: Path) -> None:
    """Delete what an interrupted removal left behind."""
    for hidden in folder.glob(f".{PREFIX_CHECKPOINT_DIR}-*.removing"):
        _delete(hidden)


def _delete(hidden: Path) -> None:
    try:
        if hidden.is_symlink():
            hidden.unlink()
        else:
            shutil.rmtree(hidden)
    except OSError as error:
        logger.warning("%s is left over from a removed checkpoint and cannot be deleted: %s", hidden, error)
