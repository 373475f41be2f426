"""Which run wrote each checkpoint of a folder, and which run is the newest."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from footplate.checkpoint.seal import MANIFEST_NAME, MAX_MANIFEST_BYTES, is_whole
from footplate.disk import read_json
from footplate.state import TRAINER_STATE_NAME, RunIdentity

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

MAX_STATE_BYTES = 1 << 30


class Origin(NamedTuple):
    """The run that wrote a checkpoint, and when."""

    run_id: str  # empty for those without one, such as all that transformers wrote: they count as one run
    saved_at: float  # seconds since 1970


class RunInFolder(NamedTuple):
    """The checkpoints of one run, lowest step first."""

    run_id: str
    saved_at: float  # of the one that was written last
    checkpoints: tuple[Path, ...]

    @property
    def name(self) -> str:
        """How messages call the run."""
        return f"run {self.run_id}" if self.run_id else "a run without a name, as transformers writes it"


def find_origin(checkpoint: Path) -> Origin | None:
    """The run that a checkpoint says it belongs to; None if no run wrote it, or its state is damaged."""
    state = checkpoint / TRAINER_STATE_NAME
    try:
        found = os.stat(state)
    except OSError:
        return _find_sealed_origin(checkpoint, has_state=False)
    origin = _read_origin(str(state), found.st_ino, found.st_mtime_ns, found.st_size)
    return origin if origin is not None else _find_sealed_origin(checkpoint, has_state=True)


def _find_sealed_origin(checkpoint: Path, has_state: bool) -> Origin | None:
    """The run that a manifest names, where the state does not: somebody removed or changed it."""
    manifest = checkpoint / MANIFEST_NAME
    try:
        run_id = read_json(manifest, MAX_MANIFEST_BYTES).get("run_id")
    except (OSError, ValueError):
        return None
    if isinstance(run_id, str) and run_id:
        return Origin(run_id, _find_time(manifest))
    # weights alone, sealed by hand: a checkpoint whose manifest names a state has lost it
    return Origin("", _find_time(manifest)) if not has_state and is_whole(checkpoint) else None


def group_by_run(checkpoints: Iterable[Path]) -> list[RunInFolder]:
    """The runs that wrote these checkpoints, the one that saved last first; others are left out."""
    members: dict[str, list[Path]] = {}
    times: dict[str, float] = {}
    for path in checkpoints:
        origin = find_origin(path)
        if origin is not None:
            members.setdefault(origin.run_id, []).append(path)
            times[origin.run_id] = max(origin.saved_at, times.get(origin.run_id, origin.saved_at))
    runs = [RunInFolder(run_id, times[run_id], tuple(paths)) for run_id, paths in members.items()]
    return sorted(runs, key=lambda run: run.saved_at, reverse=True)


def belongs_to(checkpoint: Path, run_id: str) -> bool:
    """Whether this run wrote the checkpoint."""
    origin = find_origin(checkpoint)
    return origin is not None and origin.run_id == run_id


def is_written_by_a_run(folder: Path) -> bool:
    """Whether a folder has the marks of a checkpoint, intact or damaged; others belong to the user."""
    return any(os.path.lexists(folder / name) for name in (MANIFEST_NAME, TRAINER_STATE_NAME))


def overwrites(args: TrainingArguments) -> bool:
    """Whether `overwrite_output_dir`, a setting of 4.x, gives the folder to a new run."""
    return bool(getattr(args, "overwrite_output_dir", False))


# a state holds the log history and may be long: each is read once, not after every save
@lru_cache(maxsize=1024)
def _read_origin(path: str, inode: int, changed: int, num_bytes: int) -> Origin | None:
    try:
        callbacks: Any = read_json(path, MAX_STATE_BYTES).get("stateful_callbacks")
    except (OSError, ValueError):
        return None
    identity = callbacks.get(RunIdentity.__name__) if isinstance(callbacks, dict) else None
    attributes = identity.get("attributes") if isinstance(identity, dict) else None
    values = attributes if isinstance(attributes, dict) else {}
    run_id, saved_at = values.get("run_id"), values.get("saved_at")
    # a copy changes the times of files, but not what they say
    if not isinstance(saved_at, (int, float)) or not math.isfinite(saved_at):
        saved_at = changed / 1e9
    return Origin(run_id if isinstance(run_id, str) else "", float(saved_at))


def _find_time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
