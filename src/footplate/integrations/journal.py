"""The local event log of a run: each event is a line of `events.jsonl`, written before trackers get it."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from footplate.disk import open_append, open_regular, parse_json, read_lines
from footplate.resumed import ResumePoint

logger = logging.getLogger(__name__)

JOURNAL_NAME = "events.jsonl"
MAX_LINE_BYTES = 1 << 26  # a block of samples may be long; a longer line is left out

# The kinds of lines. Each has "kind" and "time" (seconds since 1970), most have "step".
#   begin    a run begins or resumes: the fields of integrations.run.Run; it resumes from "first_step"
#   log      "step", "epoch", "logs" {key: value}, "prefixes" [...], "seconds" {where the time went: seconds},
#            "ranks" {"rows": of each, "times": [[busy, waited] of each]} with several processes,
#            "number": its number among the run's logs, from 1; a resume makes some numbers again
#   predict  "step", "logs", "prefixes": the metrics of a prediction
#   samples  "step", "source", "rows" [{"input", "target", "prediction", ...}]
#   save     "step", "folder" (within output_dir), "best_step", "best_metric": a sealed checkpoint
#   warning  "step", "level", "message", "tracker" (that it is about, or null), "is_off" (switched off)
#   end      "step", "metrics", "stopped_by" (before the last update: a signal or "max_time", or null):
#            training has ended
# Any other kind is a note (`on_note`): something that was measured and is no metric, with values of its own.
KINDS = ("begin", "log", "predict", "samples", "save", "warning", "end")


class Journal:
    """Appends events to a file; an event is complete in the file when `write` returns.

    Args:
        folder: Where the file is kept.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        # absolute: a thread of a tracker may change the working folder
        self.path = Path(os.path.abspath(folder), JOURNAL_NAME)
        self._descriptor: int | None = None
        self._begin = b""  # the line with which the current run began
        self._has_failed = self._ends_mid_line = False

    def write(self, kind: str, **values: Any) -> None:
        """Append one event; if that fails, warn once and continue."""
        data = _encode({"kind": kind, "time": time.time(), **values})
        if kind == "begin":
            self._begin = data
        try:
            # one write to a file opened for appending: a kill cuts at most the last line
            data = b"\n" + data if self._ends_mid_line else data
            self._ends_mid_line = os.write(self._open(), data) < len(data)
            if self._ends_mid_line:
                raise OSError("the disk was full in the middle of a line")
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True  # before the warning, which is written to this journal too
                logger.warning("%s could not be written, so events are missing in it: %s.", self.path, error)

    def close(self) -> None:
        """Close the file; a later `write` opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # a process may make thousands of trainers, each with an open file; `os.close` is bound here because
        # at the exit of the process the names of this module may be gone before its objects
        if self._descriptor is not None:
            close(self._descriptor)

    def _open(self) -> int:
        is_gone = self._descriptor is not None and os.fstat(self._descriptor).st_nlink == 0
        if is_gone:
            self.close()  # the folder was removed: write to a new file; this check costs 0.3 microseconds
        if self._descriptor is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = open_append(self.path)
            if _ends_in_mid_line(self.path):
                os.write(self._descriptor, b"\n")  # a line that a kill has cut must not run into the next one
            if is_gone:
                os.write(self._descriptor, self._begin)
        return self._descriptor


def read_events(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """The events of a journal."""
    with open_regular(path) as file:
        yield from parse_lines(read_lines(file, MAX_LINE_BYTES))


def parse_lines(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The events in these lines.

    A line that a kill cut, that is still being written, or that no journal has, is left out.
    """
    for line in lines:
        try:
            event = parse_json(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("kind"), str) and _has_right_types(event):
            yield event


_INTEGER, _TEXT, _OBJECT, _LIST = int, (str, type(None)), dict, list
_TYPES: dict[str, Any] = {
    **dict.fromkeys(("step", "first_step"), _INTEGER),
    **dict.fromkeys(("number", "num_logs"), (int, type(None))),
    **dict.fromkeys(("run_id", "folder", "source", "tracker"), _TEXT),
    **dict.fromkeys(("logs", "metrics"), _OBJECT),
    **dict.fromkeys(("prefixes", "rows"), _LIST),
}


def _has_right_types(event: Mapping[str, Any]) -> bool:
    """Whether what other code relies on is there as it is written; other keys may hold anything."""
    return all(isinstance(event[key], kinds) for key, kinds in _TYPES.items() if key in event)


def last_run(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The events of the last run in a journal, without those that a resume made again.

    A run that only evaluates does not replace one that trained.
    """
    kept: list[dict[str, Any]] = []
    run_id, is_ignored = None, False
    for event in events:
        if event["kind"] == "begin":
            is_same = event.get("run_id") == run_id
            is_ignored = bool(kept) and not is_same and not event.get("max_steps", 1)
            if not is_ignored:
                point = ResumePoint(int(event.get("first_step", 0)), event.get("num_logs"))
                kept = [earlier for earlier in kept if _stays(earlier, point)] if is_same else []
                run_id = event.get("run_id")
        if not is_ignored:
            kept.append(dict(event))
    return kept


def _stays(event: Mapping[str, Any], point: ResumePoint) -> bool:
    """Whether an event stays when its run resumes."""
    if event["kind"] in ("begin", "warning"):  # a resume does not make these again
        return True
    is_end = event["kind"] == "end"  # a run that resumes has not ended
    return not is_end and point.keeps(int(event.get("step", 0)), event.get("number"))


def _ends_in_mid_line(path: Path) -> bool:
    if not path.is_file():  # a device
        return False
    with open_regular(path) as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def _to_plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


_ENCODER = json.JSONEncoder(default=_to_plain, ensure_ascii=False)  # NaN stays NaN, as Python reads it


def _encode(event: dict[str, Any]) -> bytes:
    """The event as a line; values that JSON cannot hold become text."""
    try:
        line = _ENCODER.encode(event)
    except (TypeError, ValueError, RecursionError):  # keys that are not text, or a value inside itself
        line = _ENCODER.encode({key: _to_text(value) for key, value in event.items()})
    return line.encode("utf-8", "backslashreplace") + b"\n"


def _to_text(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            str(key): inner if isinstance(inner, (int, float)) else str(inner) for key, inner in value.items()
        }
    return value if isinstance(value, (int, float, str, type(None))) else str(value)
