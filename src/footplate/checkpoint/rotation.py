"""Which checkpoints a folder has, which of them can be trusted, and which go."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection
from pathlib import Path

from footplate.checkpoint.files import Folder
from footplate.checkpoint.seal import (
    REMOVING,
    REPLACED,
    WRITING,
    discard,
    hidden_sibling,
    is_whole,
    restore_replaced,
    verify_checkpoint,
)

PREFIX_CHECKPOINT_DIR = "checkpoint"

logger = logging.getLogger(__name__)
_named: set[tuple[Path, str]] = set()  # what was passed over is named once


def find_checkpoint_folders(folder: Folder) -> list[Path]:
    """Every folder named as a checkpoint, whole or not, oldest first by its step."""
    if not Path(folder).is_dir():
        return []
    for hidden in _find_hidden(Path(folder), REPLACED):
        restore_replaced(_visible(hidden, REPLACED))
    steps = {path: _find_step(path) for path in Path(folder).iterdir()}
    found = [(step, path) for path, step in steps.items() if step is not None and path.is_dir()]
    return [path for _, path in sorted(found)]


def find_checkpoints(folder: Folder) -> list[Path]:
    """The checkpoints in `folder` that have all their files, oldest first by their step."""
    return [path for path in find_checkpoint_folders(folder) if is_whole(path)]


def find_last_checkpoint(folder: Folder) -> str | None:
    """The intact checkpoint with the highest step, as a path; None where there is none.

    Newer ones that are damaged are passed over, and a warning names them with the reason.

    Args:
        folder: The `output_dir` of a run.
    """
    passed_over: dict[Path, str] = {}
    found = None
    for path in reversed(find_checkpoint_folders(folder)):
        verdict = verify_checkpoint(path)
        if verdict.is_intact:
            found = os.path.join(os.fspath(folder), path.name)
            break
        passed_over[path] = verdict.reason
    _warn_once(passed_over, found)
    return found


get_last_checkpoint = find_last_checkpoint


def rotate_checkpoints(folder: Folder, limit: int | None, keep: Collection[str] = ()) -> list[Path]:
    """Remove and return the oldest checkpoints beyond `limit`; the newest intact one and any in `keep` stay.

    Hidden folders that a dead run left behind go too, so nothing may be in the middle of writing. What is in
    `keep` is taken to be intact: naming the checkpoint just sealed spares reading it again.
    """
    checkpoints = find_checkpoints(folder)
    _remove_leftovers(Path(folder))
    if limit is None or limit <= 0 or len(checkpoints) <= limit:
        return []
    # by name, not by path: after a folder has moved, the best one is still the best one
    protected = {Path(path).name for path in keep}
    while not (checkpoints[-1].name in protected or verify_checkpoint(checkpoints[-1]).is_intact):
        checkpoints.pop()  # the files are not what was written: it does not count, and is left alone
        if not checkpoints:
            return []
    protected |= {path.name for path in checkpoints[-1:]}
    removable = [path for path in checkpoints if path.name not in protected]
    num_surplus = max(0, len(checkpoints) - limit)
    return [path for path in removable[:num_surplus] if _remove(path)]


def _find_step(path: Path) -> int | None:
    match = re.fullmatch(rf"{PREFIX_CHECKPOINT_DIR}-(\d+)", path.name)
    return int(match[1]) if match else None


def _find_hidden(folder: Path, purpose: str) -> list[Path]:
    """The hidden siblings of checkpoints that serve one purpose."""
    hidden = folder.glob(f".{PREFIX_CHECKPOINT_DIR}-*.{purpose}")
    return [path for path in hidden if _find_step(_visible(path, purpose)) is not None]


def _visible(hidden: Path, purpose: str) -> Path:
    """The checkpoint that a hidden sibling belongs to."""
    return hidden.with_name(hidden.name.removeprefix(".").removesuffix(f".{purpose}"))


def _remove(checkpoint: Path) -> bool:
    """Hide the folder under another name, then delete it: half a checkpoint is never seen as one."""
    hidden = hidden_sibling(checkpoint, REMOVING)
    try:
        os.rename(checkpoint, hidden)
    except OSError as error:
        logger.warning("%s is beyond save_total_limit but cannot be removed: %s", checkpoint, error)
        return False
    discard(hidden)
    return True


def _remove_leftovers(folder: Path) -> None:
    """Delete what interrupted writes, replacements and removals left behind."""
    for purpose in (WRITING, REPLACED, REMOVING):
        for hidden in _find_hidden(folder, purpose):
            if purpose != REPLACED or _visible(hidden, purpose).is_dir():
                discard(hidden)


def _warn_once(passed_over: dict[Path, str], found: str | None) -> None:
    fresh = {path: reason for path, reason in passed_over.items() if (path.absolute(), reason) not in _named}
    _named.update((path.absolute(), reason) for path, reason in fresh.items())
    if fresh:
        logger.warning(
            "Damaged checkpoints are passed over: %s. %s",
            "; ".join(f"{path} ({reason})" for path, reason in fresh.items()),
            f"The newest intact one is {found}." if found else "No intact one is left.",
        )
