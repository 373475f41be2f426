"""Finds the folders of runs below a folder, and says how much room each takes; nothing is changed."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from footplate.integrations.journal import JOURNAL_NAME
from footplate.report.source import find_state_file
from footplate.state import TRAINER_STATE_NAME

MAX_ENTRIES = 200_000  # files and folders that are looked at: somebody may give the root of a disk
MAX_FILES = 50_000  # of one run, for its size
CHECKPOINT = re.compile(r"checkpoint-[0-9]+")


class Found(NamedTuple):
    """The folders of runs, and whether all were looked at."""

    folders: list[Path]
    is_whole: bool


class Size(NamedTuple):
    """The room that files take, and whether all were counted."""

    num_bytes: int
    is_whole: bool


def find_run_folders(root: str | Path, max_entries: int = MAX_ENTRIES) -> Found:
    """The folders of runs in `root`, itself included, at any depth: the upper ones first.

    Links, hidden folders and checkpoints are not entered; a folder that may not be read is passed over.
    """
    waiting, found, num_left = deque([Path(root)]), [], max_entries
    while waiting and num_left > 0:
        folder = waiting.popleft()
        inside: list[str] = []
        has_checkpoint = is_run = False
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    num_left -= 1
                    if num_left < 0:
                        break
                    is_run = is_run or entry.name in (JOURNAL_NAME, TRAINER_STATE_NAME)
                    if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
                        continue
                    if CHECKPOINT.fullmatch(entry.name):
                        has_checkpoint = True
                    else:
                        inside.append(entry.name)
            if is_run or (has_checkpoint and find_state_file(folder) is not None):
                found.append(folder)
        except OSError:
            continue
        waiting.extend(
            folder / name for name in sorted(inside) if name not in (JOURNAL_NAME, TRAINER_STATE_NAME)
        )
    return Found(found, num_left >= 0 and not waiting)


def measure_folder(folder: Path, besides: Collection[Path] = (), max_files: int = MAX_FILES) -> Size:
    """The bytes of all files below a folder, a file with several names once.

    Args:
        folder: Where to begin.
        besides: Folders inside it that do not count, such as those of other runs.
        max_files: After so many, counting ends.
    """
    waiting, seen, num_bytes, num_left = [folder], set(), 0, max_files
    while waiting and num_left > 0:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    num_left -= 1
                    if num_left < 0:
                        break
                    if entry.is_dir(follow_symlinks=False):
                        path = Path(entry.path)
                        waiting.extend([path] if path not in besides else [])
                        continue
                    status = entry.stat(follow_symlinks=False)
                    identity = (status.st_dev, status.st_ino)
                    if status.st_nlink == 1 or identity not in seen:
                        num_bytes += status.st_size
                    if status.st_nlink > 1:
                        seen.add(identity)
        except OSError:  # removed in this moment, as old checkpoints are, or not readable
            continue
    return Size(num_bytes, num_left >= 0 and not waiting)
