"""Which checkpoints a folder has, which of them are intact, and which are removed."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection
from itertools import count
from pathlib import Path
from typing import NamedTuple

from footplate.checkpoint.process import find_tagged, this_process
from footplate.checkpoint.runs import RunInFolder, belongs_to, group_by_run, is_written_by_a_run
from footplate.checkpoint.seal import (
    REHEARSING,
    REMOVING,
    REPLACED,
    WRITING,
    discard,
    hidden_sibling,
    in_progress,
    is_whole,
    restore_replaced,
    verify_checkpoint,
)
from footplate.disk import StrPath as Folder

PREFIX_CHECKPOINT_DIR = "checkpoint"

logger = logging.getLogger(__name__)
_warned: set[tuple[Path, str]] = set()  # folders that were skipped and why: one warning for each


def find_checkpoint_folders(folder: Folder) -> list[Path]:
    """Every folder named as a checkpoint, complete or not, lowest step first."""
    if not Path(folder).is_dir():
        return []
    _restore_all_replaced(folder)
    return list(list_checkpoint_folders(folder).values())


def list_checkpoint_folders(folder: Folder) -> dict[int, Path]:
    """The same by their step, by a look at the folder that changes nothing in it."""
    if not Path(folder).is_dir():
        return {}
    steps = {path: _find_step(path) for path in Path(folder).iterdir()}
    return dict(sorted((step, path) for path, step in steps.items() if step is not None and path.is_dir()))


def _restore_all_replaced(folder: Folder) -> None:
    """Put back each checkpoint that was to be replaced when a run was killed."""
    for hidden in _find_hidden(Path(folder), REPLACED):
        restore_replaced(hidden.visible)


def find_checkpoints(folder: Folder) -> list[Path]:
    """The checkpoints in `folder` that have all their files, lowest step first."""
    return [path for path in find_checkpoint_folders(folder) if is_whole(path)]


def find_last_checkpoint(folder: Folder) -> str | None:
    """The intact checkpoint with the highest step of the run that saved last; None if it has none.

    Newer ones that are damaged are skipped, and a warning names them with the reason. Those of earlier runs
    in the same folder are never taken, whatever their step.

    Args:
        folder: The `output_dir` of a run.
    """
    folders = find_checkpoint_folders(folder)
    runs = group_by_run(folders)
    of_others = {path for run in runs[1:] for path in run.checkpoints}
    skipped: dict[Path, str] = {}
    found = None
    for path in reversed(folders):
        if path in of_others:
            continue
        verdict = verify_checkpoint(path)
        if verdict.is_intact:
            found = os.path.join(os.fspath(folder), path.name)
            break
        skipped[path] = verdict.reason
    _warn_once(skipped, found)
    _say_which_run(runs)
    return found


get_last_checkpoint = find_last_checkpoint


def find_checkpoints_of(folder: Folder, run_id: str | None = None) -> dict[int, Path]:
    """The checkpoints of one run that seem whole, by their step; nothing in the folder is changed.

    Args:
        folder: The `output_dir` of the run.
        run_id: The run; None for the one that saved last.
    """
    folders = list_checkpoint_folders(folder)
    runs = group_by_run(folders.values())
    wanted = [run for run in runs if run_id is None or run.run_id == run_id][:1]
    own = {path for run in wanted for path in run.checkpoints}
    return {step: path for step, path in folders.items() if path in own and is_whole(path)}


def rotate_checkpoints(
    folder: Folder,
    limit: int | None,
    keep: Collection[str] = (),
    run_id: str | None = None,
    sealed: Collection[str] = (),
) -> list[Path]:
    """Remove and return the oldest checkpoints beyond `limit`, never the newest intact one or any in `keep`.

    Hidden folders that a killed run left are removed too, so call this only while nothing is being written.
    Checkpoints in `keep` count as intact: if the one just sealed is among them, it is not read again. Those
    that somebody has trimmed or changed count too, or they would fill the disk.

    Args:
        folder: The `output_dir` of a run.
        limit: How many may stay; None for all.
        keep: Checkpoints that stay, by name.
        run_id: Count and remove only those of this run; None for all that runs wrote.
        sealed: Names that this run has sealed, whatever is left in these folders.
    """
    has_limit = limit is not None and limit > 0
    if not has_limit:  # none is looked at: a run that keeps thousands would spend its time on it
        _restore_all_replaced(folder)
    checkpoints = _find_own(folder, run_id, sealed) if has_limit else []
    remove_leftovers(folder)
    if limit is None or len(checkpoints) <= limit:
        return []
    checkpoints, removable = _split_off_removable(checkpoints, keep)
    num_surplus = max(0, len(checkpoints) - limit)
    return [path for path in removable[:num_surplus] if _remove(path)]


def make_room(folder: Folder, keep: Collection[str], run_id: str, sealed: Collection[str] = ()) -> bool:
    """On a full disk: remove the oldest checkpoint of this run that is not needed; False if there is none.

    Args:
        folder: The `output_dir` of a run.
        keep: Checkpoints that stay, by name; the newest intact one stays as well.
        run_id: The run.
        sealed: Names that it has sealed, whatever is left in these folders.
    """
    _, removable = _split_off_removable(_find_own(folder, run_id, sealed), keep)
    for path in removable:
        if _remove(path):
            logger.warning(
                "The disk is full. %s was removed to make room for a newer checkpoint; the best and the "
                "newest ones are kept. To keep all of them, set save_makes_room=False.",
                path,
            )
            return True
    return False


def _find_own(folder: Folder, run_id: str | None, sealed: Collection[str]) -> list[Path]:
    """The checkpoints of a run, or of all runs for None, complete or not, lowest step first."""
    return [
        path
        for path in find_checkpoint_folders(folder)
        if path.name in sealed or (is_written_by_a_run(path) if run_id is None else belongs_to(path, run_id))
    ]


def _split_off_removable(checkpoints: list[Path], keep: Collection[str]) -> tuple[list[Path], list[Path]]:
    """The checkpoints up to the newest intact one, and those of them that may be removed, oldest first."""
    # by name, not by path: the best checkpoint stays the best one after its folder was moved
    protected = {Path(path).name for path in keep}
    checkpoints = list(checkpoints)
    while checkpoints:
        if checkpoints[-1].name in protected or verify_checkpoint(checkpoints[-1]).is_intact:
            protected.add(checkpoints[-1].name)
            break
        checkpoints.pop()  # newer than any intact one: it does not count towards the limit, and stays
    return checkpoints, [path for path in checkpoints if path.name not in protected]


def find_foreign_folders(folder: Folder) -> frozenset[str]:
    """Names of folders that are named as checkpoints and that no run wrote: they belong to the user."""
    found = find_checkpoint_folders(folder)
    return frozenset(path.name for path in found if not _is_empty(path) and not is_written_by_a_run(path))


def remove_other_runs(folder: Folder, limit: int | None, run_id: str) -> list[Path]:
    """Remove and return checkpoints of other runs until at most `limit` stay, those of this run included."""
    written = [path for path in find_checkpoint_folders(folder) if is_written_by_a_run(path)]
    others = [path for path in written if not belongs_to(path, run_id)]
    num_surplus = max(0, len(written) - limit) if limit is not None and limit > 0 else 0
    return [path for path in others[:num_surplus] if _remove(path)]


def make_way(checkpoint: Folder, run_id: str, foreign_folders: Collection[str] | None = None) -> None:
    """Before a run writes a checkpoint: say if one of another run is replaced, and keep what no run wrote.

    Args:
        checkpoint: The folder that will be written.
        run_id: The run that writes it.
        foreign_folders: Names that were there before the run and that no run wrote. Another folder without
            the marks of a run was begun by code of this run, and its files become part of the checkpoint.
    """
    path = Path(checkpoint)
    if not os.path.lexists(path) or _is_empty(path) or belongs_to(path, run_id):
        return
    if is_written_by_a_run(path):
        if (path.parent.absolute(), run_id) not in _warned:
            _warned.add((path.parent.absolute(), run_id))
            logger.warning(
                "%s is of an earlier run in this folder and is replaced; so are others of a step that this "
                "run comes to. Those of other steps stay. To keep all of them, use another output_dir.",
                path,
            )
        return
    if foreign_folders is not None and path.name not in foreign_folders and path.is_dir():
        return
    aside = next(
        name
        for number in count(1)
        if not os.path.lexists(name := path.with_name(f"{path.name}.kept-{number}"))
    )
    os.rename(path, aside)
    logger.warning("%s is not a checkpoint of a run. It is renamed to %s to make way.", path, aside.name)


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not any(path.iterdir())


def _find_step(path: Path) -> int | None:
    match = re.fullmatch(rf"{PREFIX_CHECKPOINT_DIR}-([0-9]+)", path.name)
    return int(match[1]) if match else None


class _Hidden(NamedTuple):
    """A hidden folder beside checkpoints."""

    path: Path
    visible: Path  # the checkpoint that it belongs to
    tag: str | None  # of the process that made it

    def is_abandoned(self, is_sole: bool) -> bool:
        """Whether nobody is writing it; `is_sole`: no other run can be writing into this folder."""
        if self.tag is None:
            return True  # made by the run that has this folder, and by one call
        process = find_tagged(self.tag)
        if process == this_process():
            return self.path not in in_progress
        is_alive = process.is_alive() if process is not None else None
        return is_sole if is_alive is None else not is_alive


def _find_hidden(folder: Path, purpose: str) -> list[_Hidden]:
    """The hidden folders beside checkpoints that serve one purpose."""
    name = rf"\.({PREFIX_CHECKPOINT_DIR}-[0-9]+)(?:\.([0-9a-f]+-[0-9]+-[0-9]+)-[0-9]+)?\.{purpose}"
    try:
        found = os.listdir(folder)
    except OSError:  # it is not there
        return []
    matches = [re.fullmatch(name, entry) for entry in found if entry[0] == "." and entry.endswith(purpose)]
    return [_Hidden(folder / match[0], folder / match[1], match[2]) for match in matches if match]


def _remove(checkpoint: Path) -> bool:
    """Rename the folder to a hidden name, then delete it: a half-deleted checkpoint is never found."""
    hidden = hidden_sibling(checkpoint, REMOVING)
    try:
        os.rename(checkpoint, hidden)
    except OSError as error:
        logger.warning("%s is no longer needed but cannot be removed: %s", checkpoint, error)
        return False
    discard(hidden)
    return True


def remove_leftovers(folder: Folder, is_sole: bool = False) -> None:
    """Delete the hidden folders that interrupted writes, replacements and removals left.

    Args:
        folder: The `output_dir` of a run.
        is_sole: No other run can be writing into it, not even from another machine.
    """
    for purpose in (WRITING, REPLACED, REMOVING):
        for hidden in _find_hidden(Path(folder), purpose):
            # a replaced folder without its successor is the only copy of that checkpoint
            if purpose == REPLACED and not hidden.visible.is_dir():
                continue
            if hidden.is_abandoned(is_sole):
                discard(hidden.path)
    for path in Path(folder).glob(f"{REHEARSING}*"):  # of a rehearsal that was killed
        match = re.fullmatch(re.escape(REHEARSING) + r"([0-9a-f]+-[0-9]+-[0-9]+)\..*", path.name)
        if match is None or find_tagged(match[1]) == this_process():
            continue
        if _Hidden(path, path, match[1]).is_abandoned(is_sole):
            discard(path)


def _warn_once(skipped: dict[Path, str], found: str | None) -> None:
    new = {path: reason for path, reason in skipped.items() if (path.absolute(), reason) not in _warned}
    _warned.update((path.absolute(), reason) for path, reason in new.items())
    if new:
        logger.warning(
            "Damaged checkpoints are skipped: %s. %s",
            "; ".join(f"{path} ({reason})" for path, reason in new.items()),
            f"The newest intact one is {found}." if found else "No intact one is left.",
        )


def _say_which_run(runs: list[RunInFolder]) -> None:
    """Warn, once for each folder and choice, that it has checkpoints of several runs."""
    if len(runs) < 2:
        return
    newest, *others = runs
    key = (newest.checkpoints[0].parent.absolute(), f"runs {newest.run_id}")
    if key in _warned:
        return
    _warned.add(key)
    passed_over = "; ".join(f"{run.name}, up to {run.checkpoints[-1].name}" for run in others)
    logger.warning(
        "%s has checkpoints of %d runs. Those of the run that saved last are used: %s, up to %s. "
        "Not used: %s. To resume one of these, give the path of its checkpoint.",
        newest.checkpoints[0].parent,
        len(runs),
        newest.name,
        newest.checkpoints[-1].name,
        passed_over,
    )
