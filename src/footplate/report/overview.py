"""All runs below a folder: one row for each, read again when it changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from footplate.integrations.journal import JOURNAL_NAME
from footplate.report.data import RunData
from footplate.report.folders import MAX_ENTRIES, Size, find_run_folders, measure_folder
from footplate.report.glance import Glance
from footplate.report.plain import shorten
from footplate.report.source import find_state_file

RUNNING, FINISHED, STOPPED, FAILED, KILLED = "running", "finished", "stopped", "failed", "killed"
SILENT, UNFINISHED, EVALUATED, DAMAGED = "silent", "unfinished", "evaluated", "damaged"
STATUSES = (RUNNING, SILENT, FINISHED, STOPPED, FAILED, KILLED, UNFINISHED, EVALUATED, DAMAGED)
SHARE = 20  # looking for runs, and how large they are, takes at most this part of the time of a live page


class Life(Protocol):
    """What a lock tells of the process that writes into a folder."""

    @property
    def is_alive(self) -> bool | None:
        """Whether it runs; None if that cannot be told from here."""

    @property
    def pid(self) -> int | None:
        """Its number."""

    @property
    def host(self) -> str | None:
        """Its machine; None for this one."""

    @property
    def began(self) -> float:
        """When it took the folder."""

    @property
    def last_sign(self) -> float:
        """When it last gave a sign of life."""


FindLife = Callable[[Path], Life | None]


@dataclass(frozen=True)
class Row:
    """One run in the list."""

    path: str  # from the folder that was given
    name: str
    status: str
    detail: str  # its process, or why it ended
    step: int
    max_steps: int
    loss: float | None
    best_name: str | None
    best: float | None
    best_step: int | None
    best_is_higher: bool
    last_time: float | None  # of its last sign of life, in seconds since 1970
    size_bytes: int
    size_is_whole: bool
    notes: tuple[str, ...]  # what could not be read


class RunList:
    """The runs below a folder.

    Args:
        root: Where to look for them.
        find_life: Tells what process writes into a folder.
        num_points: How many points to read for the curves of each run; 0 for no curves.
        max_entries: How many files and folders to look at.
    """

    def __init__(
        self, root: str | Path, find_life: FindLife, num_points: int = 0, max_entries: int = MAX_ENTRIES
    ) -> None:
        self.root = Path(root)
        self.is_whole = True  # whether all folders were looked at
        self.rows: list[Row] = []
        self._find_life, self._num_points, self._max_entries = find_life, num_points, max_entries
        self._glances: dict[Path, Glance] = {}
        self._sizes: dict[Path, Size] = {}
        self._next_search = float("-inf")

    def update(self) -> bool:
        """Read what is new; False if the rows and the runs stay as they were."""
        if time.monotonic() >= self._next_search:
            self._search()
        is_new = False
        rows = []
        for folder, glance in self._glances.items():
            is_new = glance.update() or is_new
            rows.append(self._describe(folder, glance))
        is_new = is_new or rows != self.rows
        self.rows = rows
        return is_new

    def data_of(self, row: Row) -> RunData:
        """What is known of the run of a row."""
        return self._glances[self.root / row.path].data

    def _search(self) -> None:
        start = time.monotonic()
        found = find_run_folders(self.root, self._max_entries)
        self.is_whole = found.is_whole
        self._glances = {
            folder: self._glances.get(folder) or Glance(folder, self._num_points) for folder in found.folders
        }
        self._sizes = {folder: measure_folder(folder, found.folders) for folder in found.folders}
        end = time.monotonic()
        self._next_search = end + SHARE * (end - start)

    def _describe(self, folder: Path, glance: Glance) -> Row:
        data, life = glance.data, self._find_life(folder)
        status, detail = tell_status(glance, life)
        is_starting = status == RUNNING and data.is_over  # what is known is of an earlier run in the folder
        loss = data.curves.get(("train", "loss"))
        best = None if is_starting else data.find_best()
        max_steps = data.begun.get("max_steps")
        times = [data.last_time or find_change(folder), life.last_sign if life is not None else None]
        size = self._sizes[folder]
        return Row(
            path=folder.relative_to(self.root).as_posix(),
            name=shorten(str(data.begun.get("name") or folder.resolve().name)),
            status=status,
            detail=detail,
            step=0 if is_starting else data.step,
            max_steps=max_steps if isinstance(max_steps, int) and not is_starting else 0,
            loss=loss.values[-1] if loss is not None and loss.values and not is_starting else None,
            best_name=best["name"] if best else None,
            best=best["value"] if best else None,
            best_step=best["step"] if best else None,
            best_is_higher=data.prefers_higher,
            last_time=max((moment for moment in times if moment is not None), default=None),
            size_bytes=size.num_bytes,
            size_is_whole=size.is_whole,
            notes=find_notes(glance),
        )


def tell_status(glance: Glance, life: Life | None) -> tuple[str, str]:
    """What became of a run, and a few words on it."""
    data = glance.data
    is_new_process = life is not None and (data.last_time is None or life.began > data.last_time)
    if life is not None and life.is_alive and (not data.is_over or is_new_process):
        return RUNNING, say_process(life)
    if data.is_over:
        max_steps = data.begun.get("max_steps")
        is_whole = not isinstance(max_steps, int) or data.step >= max_steps
        return (FINISHED, "") if is_whole else (STOPPED, glance.reason or "")
    if life is not None:
        return (KILLED, "its process is gone") if life.is_alive is False else (SILENT, say_process(life))
    if glance.problem is not None or not (data.begun or data.curves):
        return DAMAGED, "" if glance.problem else "nothing to read"
    if not (glance.folder / JOURNAL_NAME).is_file():
        return UNFINISHED, "as of its trainer state"
    if not data.begun.get("max_steps"):
        return EVALUATED, "without training"
    return FAILED, glance.reason or ""


def say_process(life: Life) -> str:
    """The number of a process, and its machine if that is another one."""
    place = f" on {shorten(life.host)}" if life.host else ""
    return f"process {life.pid}{place}" if life.pid is not None else ""


def find_notes(glance: Glance) -> tuple[str, ...]:
    """What of a run could not be read."""
    notes = [] if glance.problem is None else [shorten(glance.problem)]
    if glance.num_damaged:
        lines = "1 line is" if glance.num_damaged == 1 else f"{glance.num_damaged} lines are"
        notes.append(f"{lines} damaged in {JOURNAL_NAME}")
    return tuple(notes)


def find_change(folder: Path) -> float | None:
    """When the files that tell of a run last changed."""
    try:
        journal = folder / JOURNAL_NAME
        path = journal if journal.exists() else find_state_file(folder)
        return None if path is None else path.stat().st_mtime
    except OSError:
        return None


# ---- order ----

SORT_KEYS: dict[str, Callable[[Row], Any]] = {
    "age": lambda row: -(row.last_time or 0.0),
    "name": lambda row: row.path,
    "status": lambda row: STATUSES.index(row.status),
    "step": lambda row: -row.step,
    "loss": lambda row: (row.loss is None, row.loss or 0.0),
    "size": lambda row: -row.size_bytes,
}


def sort_rows(rows: Sequence[Row], by: str) -> list[Row]:
    """The rows in order: the newest first by age, the lowest loss, the best metric, the largest and so on."""
    named = sorted(rows, key=lambda row: row.path)
    if by == "best":  # values of several metrics are not compared with each other
        return sorted(named, key=lambda row: (row.best is None, row.best_name or "", lower_is_better(row)))
    return sorted(named, key=SORT_KEYS[by])


def lower_is_better(row: Row) -> float:
    """The best value, turned so that a lower one is better."""
    value = row.best or 0.0
    return -value if row.best_is_higher else value
