"""The local event log of a run: every event is a line of `events.jsonl` before anybody else hears of it."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

JOURNAL_NAME = "events.jsonl"

# The kinds of lines. Each has "kind" and "time" (seconds since 1970), most have "step".
#   begin    a run, or its next leg: what integrations.run.Run holds; "first_step" says where it goes on
#   log      "step", "epoch", "logs" {key: value}, "prefixes" [...], "seconds" {where the time went: seconds},
#            "number": which of the run's logs it is, from 1; a resume makes some of them again
#   predict  "step", "logs", "prefixes": the metrics of a prediction
#   samples  "step", "source", "rows" [{"input", "target", "prediction", ...}]
#   save     "step", "folder" (within output_dir), "best_step", "best_metric": a sealed checkpoint
#   warning  "step", "level", "message", "tracker" (the one it is about, or null), "is_off" (it gave up)
#   end      "step", "metrics": training came to its end


class Journal:
    """Appends events to a file; each is there, whole, when `write` returns.

    Args:
        folder: Where the file is kept.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder, JOURNAL_NAME)
        self._descriptor: int | None = None
        self._begin = b""  # the line of the run that is written now
        self._has_failed = self._is_cut = False

    def write(self, kind: str, **values: Any) -> None:
        """Append one event; a full disk is said once and stops nothing."""
        data = _encode({"kind": kind, "time": time.time(), **values})
        if kind == "begin":
            self._begin = data
        try:
            # one write to a file opened for appending: a kill leaves whole lines, or one cut at its end
            data = b"\n" + data if self._is_cut else data
            self._is_cut = os.write(self._open(), data) < len(data)
            if self._is_cut:
                raise OSError("the disk was full in the middle of a line")
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True  # first: what hears the warning may write it here
                logger.warning("%s could not be written, so it misses events: %s.", self.path, error)

    def close(self) -> None:
        """Give the file back; a later `write` opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def __del__(self) -> None:  # a process may make thousands of trainers
        self.close()

    def _open(self) -> int:
        is_gone = self._descriptor is not None and os.fstat(self._descriptor).st_nlink == 0
        if is_gone:
            self.close()  # somebody removed the folder: 0.3 microseconds, and the next events are kept
        if self._descriptor is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            if _ends_in_mid_line(self.path):
                os.write(self._descriptor, b"\n")  # what a kill cut off stays alone on its line
            if is_gone:
                os.write(self._descriptor, self._begin)
        return self._descriptor


def read_events(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """The events of a journal; a line that a kill cut short, or that is being written now, is passed over."""
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and "kind" in event:
                yield event


def last_run(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The events of the last run in a journal, without the points that a resume made again.

    A run that trains nothing, but only evaluates, does not push aside one that trained.
    """
    kept: list[dict[str, Any]] = []
    run_id, is_aside = None, False
    for event in events:
        if event["kind"] == "begin":
            is_aside = bool(kept) and event.get("run_id") != run_id and not event.get("max_steps", 1)
            if not is_aside:
                is_resumed = event.get("run_id") == run_id
                kept = [e for e in kept if _stays(e, event)] if is_resumed else []
                run_id = event.get("run_id")
        if not is_aside:
            kept.append(dict(event))
    return kept


def _stays(event: Mapping[str, Any], begin: Mapping[str, Any]) -> bool:
    """Whether an event was before the point from which the run goes on at `begin`."""
    if event["kind"] in ("begin", "warning"):
        return True
    if "number" in event and "num_logs" in begin:
        return bool(event["number"] <= begin["num_logs"])
    return event["kind"] != "end" and int(event.get("step", 0)) <= int(begin.get("first_step", 0))


def _ends_in_mid_line(path: Path) -> bool:
    with open(path, "rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def _to_plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


_ENCODER = json.JSONEncoder(default=_to_plain, ensure_ascii=False)  # NaN stays NaN, as Python reads it


def _encode(event: dict[str, Any]) -> bytes:
    """The event as a line; what JSON cannot hold at all becomes text."""
    try:
        line = _ENCODER.encode(event)
    except (TypeError, ValueError, RecursionError):  # keys that are no strings, or a value within itself
        line = _ENCODER.encode({key: _to_text(value) for key, value in event.items()})
    return line.encode("utf-8", "backslashreplace") + b"\n"


def _to_text(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            str(key): inner if isinstance(inner, (int, float)) else str(inner) for key, inner in value.items()
        }
    return value if isinstance(value, (int, float, str, type(None))) else str(value)
