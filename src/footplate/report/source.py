"""Reads the runs of a report: from the journal of a run, or from the trainer state in its folder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from footplate.disk import open_regular, read_json
from footplate.integrations.journal import JOURNAL_NAME, MAX_LINE_BYTES, parse_lines
from footplate.report.data import RunData
from footplate.state import TRAINER_STATE_NAME

CHUNK_BYTES = 1 << 22
MAX_STATE_BYTES = 1 << 30


class RunSource:
    """Reads a folder; each later update reads only what was added.

    Args:
        folder: The `output_dir` of a run.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.data = RunData(folder)
        self._offset = 0
        self._identity: tuple[int, ...] = ()

    def check(self) -> None:
        """Raise if the folder holds no run."""
        if not self.folder.is_dir():
            raise ValueError(f"{str(self.folder)!r} is not a folder. Give the output_dir of a run.")
        if not holds_run(self.folder):
            inside = sorted(str(path) for path in self.folder.iterdir() if path.is_dir() and holds_run(path))
            found = f"There are runs inside: {' '.join(inside[:10])}"
            raise ValueError(
                f"{str(self.folder)!r} holds neither {JOURNAL_NAME} nor {TRAINER_STATE_NAME}, itself or in a "
                f"checkpoint-*. {found if inside else 'Give the output_dir of a run.'}"
            )

    def update(self) -> bool:
        """Read what is new; False if nothing is."""
        journal = self.folder / JOURNAL_NAME
        return self._update_from_journal(journal) if journal.is_file() else self._update_from_state()

    def _update_from_journal(self, path: Path) -> bool:
        status = path.stat()
        if self._identity != (status.st_ino,) or status.st_size < self._offset:  # not the file of last time
            self.data, self._offset, self._identity = RunData(self.folder), 0, (status.st_ino,)
        is_new = False
        with open_regular(path) as file:
            file.seek(self._offset)
            rest = b""
            while chunk := file.read(CHUNK_BYTES):
                *lines, rest = (rest + chunk).split(b"\n")
                is_new = self._add_lines(lines) or is_new
                if len(rest) > MAX_LINE_BYTES:
                    rest = b""  # no journal has such a line: what follows it up to its end is left out too
            self._offset = file.tell() - len(rest)  # a line that is still being written is read next time
        return is_new

    def _update_from_state(self) -> bool:
        path = find_state_file(self.folder)
        if path is None:
            return False
        status = path.stat()
        identity = (status.st_ino, status.st_size, status.st_mtime_ns)
        if identity == self._identity:
            return False
        self.data, self._identity = RunData(self.folder), identity
        self._add_events(events_of_state(read_state(path), self.folder))
        return True

    def _add_lines(self, lines: list[bytes]) -> bool:
        """Add the events of these lines of the journal; False if they hold none."""
        return self._add_events(parse_lines(lines))

    def _add_events(self, events: Iterable[Mapping[str, Any]]) -> bool:
        """Add these events; False if there is none."""
        is_new = False
        for event in events:
            self.data.add(event)
            is_new = True
        return is_new


def holds_run(folder: Path) -> bool:
    """Whether a folder is the `output_dir` of a run."""
    return (folder / JOURNAL_NAME).is_file() or find_state_file(folder) is not None


def find_state_file(folder: Path) -> Path | None:
    """The trainer state of the folder itself or of its newest checkpoint, whichever was written last."""
    steps = {}
    for path in folder.glob(f"checkpoint-*/{TRAINER_STATE_NAME}"):
        if re.fullmatch(r"checkpoint-[0-9]+", path.parent.name) and path.is_file():
            steps[int(path.parent.name.rpartition("-")[2])] = path
    newest = [steps[max(steps)]] if steps else []
    own = folder / TRAINER_STATE_NAME
    found = [*newest, own] if own.is_file() else newest
    return max(found, key=lambda path: path.stat().st_mtime_ns, default=None)


def read_state(path: Path) -> Mapping[str, Any]:
    """The content of a trainer state file; raises ValueError if it is not a JSON object."""
    try:
        return read_json(path, MAX_STATE_BYTES)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}.") from error


def events_of_state(state: Mapping[str, Any], folder: Path | None = None) -> Iterator[dict[str, Any]]:
    """The events that the journal would have for a trainer state."""
    history = state.get("log_history")
    history = [entry for entry in history if isinstance(entry, dict)] if isinstance(history, list) else []
    yield {"kind": "begin", "max_steps": state.get("max_steps"), "name": state.get("name")}
    for entry in history:
        logs = {key: value for key, value in entry.items() if key != "step"}
        yield {"kind": "log", "step": entry.get("step", 0), "epoch": entry.get("epoch"), "logs": logs}
    best = {"best_step": state.get("best_global_step"), "best_metric": state.get("best_metric")}
    for path in folder.glob("checkpoint-*") if folder is not None else ():
        number = path.name.rpartition("-")[2]
        if re.fullmatch(r"[0-9]{1,18}", number):
            yield {"kind": "save", "step": int(number), "folder": path.name, **best}
    step, max_steps = state.get("global_step"), state.get("max_steps")
    is_whole = isinstance(step, int) and isinstance(max_steps, int) and step >= max_steps > 0
    if is_whole or any("train_runtime" in entry for entry in history):
        yield {"kind": "end", "step": state.get("global_step", 0)}
