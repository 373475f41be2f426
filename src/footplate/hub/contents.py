"""Which files of a run go to the Hub, and where in the repository."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

LEDGER_NAME = "hub.json"
SNAPSHOTS = ".push"  # inside the run's folder: links to what is being sent
MAX_COPIED_BYTES = 1 << 20
LAST_CHECKPOINT = "last-checkpoint"
MODEL = "the model"  # how messages and the ledger call it
# what stays at home: other checkpoints and trials, hidden and temporary files, what names this machine, and
# rows of the data, which need not be for everybody
_AT_HOME = re.compile(
    r"_.*|\.(?!git(ignore|attributes)$).*|.*\.sagemaker-upload(ing|ed)|checkpoint-\d+|run-.*|search|trackers|failed_evaluation|events\.jsonl.*|report\.html|hub\.json"
    r"|(samples|hardest_rows)\.jsonl.*"
    r"|README\.old\d*\.md"
)
# what only a resume needs
_STATE = re.compile(
    r"(optimizer|scheduler|scaler|rng_state|random_states|loader|ranks)[\w.-]*|(model|optimizer)_shards"
    r"|trainer_state\.json|manifest\.json|groups\.pt"
)
_WEIGHTS = re.compile(r".*\.(safetensors|bin|pt|pth)(\.index\.json)?")
_numbers = itertools.count(1)


def find_run_files(folder: Path) -> dict[str, Path]:
    """The files of a run's folder that make up the model, by their path in the repository."""
    return {
        path.relative_to(folder).as_posix(): path
        for top in sorted(folder.iterdir())
        if not _AT_HOME.fullmatch(top.name)
        for path in _files_in(top, folder)
    }


def find_model_files(checkpoint: Path) -> dict[str, Path]:
    """The files of a checkpoint that make up the model; none if it holds no weights in one piece."""
    found = {
        path.relative_to(checkpoint).as_posix(): path
        for top in sorted(checkpoint.iterdir())
        if not _STATE.fullmatch(top.name)
        for path in _files_in(top, checkpoint)
    }
    return found if has_weights(found) else {}


def has_weights(files: dict[str, Path]) -> bool:
    """Whether one of these files at the top is named as weights are."""
    return any(_WEIGHTS.fullmatch(name) and name != "training_args.bin" for name in files)


def find_resume_files(checkpoint: Path, strategy: str) -> dict[str, Path]:
    """All files of a checkpoint, under the folder of the repository that `hub_strategy` gives it, if any."""
    if strategy not in ("checkpoint", "all_checkpoints"):
        return {}
    place = checkpoint.name if strategy == "all_checkpoints" else LAST_CHECKPOINT
    return {
        f"{place}/{path.relative_to(checkpoint).as_posix()}": path
        for path in _files_in(checkpoint, checkpoint)
    }


def names_of(checkpoint: str, strategy: str) -> list[str]:
    """What a push of a checkpoint sends, in the words of messages."""
    more = {"checkpoint": [f"{LAST_CHECKPOINT} ({checkpoint})"], "all_checkpoints": [checkpoint]}
    return [f"{MODEL} of {checkpoint}", *more.get(strategy, [])]


def take_snapshot(checkpoint: Path, folder: Path) -> Path:
    """Links to the files of a checkpoint, which stay if rotation removes it; itself where there are no links.

    Args:
        checkpoint: A sealed checkpoint.
        folder: The run's folder.
    """
    files = {path.relative_to(checkpoint).as_posix(): path for path in _files_in(checkpoint, checkpoint)}
    return hold_files(files, folder, checkpoint.name) or checkpoint


def hold_files(files: dict[str, Path], folder: Path, name: str) -> Path | None:
    """A folder of links and copies that stay as they are if the files are written anew; None without links.

    Args:
        files: The files by their path in it.
        folder: The run's folder.
        name: What it is called.
    """
    place = folder / SNAPSHOTS / f"{os.getpid()}-{next(_numbers)}" / name
    try:
        for part, path in files.items():
            (place / part).parent.mkdir(parents=True, exist_ok=True)
            # libraries write small files in place, which a link would follow, and weights as new files
            hold = shutil.copyfile if path.stat().st_size <= MAX_COPIED_BYTES else os.link
            hold(path.resolve(), place / part)
    except OSError:  # another file system, or one without links
        drop_snapshot(place)
        return None
    return place


def drop_snapshot(place: Path) -> None:
    """Remove the links, if it is a snapshot."""
    if place.parent.parent.name == SNAPSHOTS:
        shutil.rmtree(place.parent, ignore_errors=True)
        with contextlib.suppress(OSError):
            place.parent.parent.rmdir()  # unless others are in it


def drop_leftovers(folder: Path) -> None:
    """Remove links that a killed process left; the run's lock must be held, so that no other one is alive."""
    for place in (folder / SNAPSHOTS).glob("*-*"):
        if not place.name.startswith(f"{os.getpid()}-"):
            shutil.rmtree(place, ignore_errors=True)


def _files_in(top: Path, home: Path) -> Iterator[Path]:
    """The files of a folder, or the file itself; none that a link leads to outside of `home`."""
    inside = home.resolve()
    for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
        if path.is_file() and path.resolve().is_relative_to(inside):
            yield path
