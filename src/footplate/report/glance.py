"""Reads a run in a hundredth of the time a report takes, for a list of many runs.

Most lines of a journal are logs of training. Of those in a row only the last is parsed, or some at equal
distances for a curve; all others, such as evaluations and checkpoints, are. So step, last loss, best metric
and status come out as a report has them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from footplate.integrations.journal import JOURNAL_NAME, parse_lines
from footplate.report.data import RunData
from footplate.report.plain import shorten
from footplate.report.source import RunSource

PLAIN_START, PLAIN_END = b'{"kind": "log", ', b"}"
LEFT_OUT = b'{"kind": "modules", '  # long, and only on the page of the run itself
EVALUATION, SUMMARY = '"eval_', '"train_runtime"'
MAX_REASON = 200  # characters
NUM_KEPT = 20  # of the logs in a row, if the last of them are damaged
FAILURE = re.compile(r"Training failed after \d+ updates: (.*?)\. All of them are in", re.DOTALL)


class Glance(RunSource):
    """A quick reader of a run.

    Args:
        folder: The `output_dir` of the run.
        num_points: How many logs of training to read for the curves; 0 for no curves.
    """

    def __init__(self, folder: str | Path, num_points: int = 0) -> None:
        super().__init__(folder)
        self._num_points = num_points
        self._forget()

    def _forget(self) -> None:
        self.problem: str | None = None  # why nothing can be read
        self.num_damaged = 0  # lines of the journal
        self.reason: str | None = None  # why the run ended early, if it says so
        self._stride = self._distance = 0
        self._read_into: RunData | None = None

    def update(self) -> bool:
        """Read what is new; what cannot be read is told by `problem`, and never an error."""
        earlier = self.problem
        try:
            is_new = super().update()
            self.problem = None
        except FileNotFoundError:  # the run was removed or replaced in this moment
            is_new, self.problem = False, "it was removed"
        except Exception as error:  # whatever the files of one run hold, the others are still listed
            is_new, self.problem = False, str(error) or type(error).__name__
        return is_new or self.problem != earlier

    def _add_lines(self, lines: list[bytes]) -> bool:
        if self._read_into is not self.data:  # another file than last time
            problem = self.problem
            self._forget()
            self.problem, self._read_into = problem, self.data
            size = (self.folder / JOURNAL_NAME).stat().st_size
            self._stride = size // self._num_points if self._num_points else 1 << 62
        return self._add_events(self._parse_some(lines))

    def _add_events(self, events: Iterable[Mapping[str, Any]]) -> bool:
        is_new = False
        for event in events:
            self._note_reason(event)
            self.data.add(event)
            is_new = True
        return is_new

    def _note_reason(self, event: Mapping[str, Any]) -> None:
        if event["kind"] == "begin":
            self.reason = None
        elif event["kind"] == "end":
            stopped_by = event.get("stopped_by")
            self.reason = shorten(stopped_by) if isinstance(stopped_by, str) else None
        elif event["kind"] == "warning" and (failure := FAILURE.match(str(event.get("message")))):
            self.reason = shorten(failure.group(1), MAX_REASON)

    def _parse_some(self, lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
        row: deque[bytes] = deque(maxlen=NUM_KEPT)  # logs of training that are left out so far
        evaluation, summary = EVALUATION.encode(), SUMMARY.encode()
        for line in lines:
            is_plain = line.startswith(PLAIN_START) and line.endswith(PLAIN_END)
            is_plain = is_plain and evaluation not in line and summary not in line
            self._distance += len(line)
            if line.startswith(LEFT_OUT):
                continue
            if is_plain and self._distance < self._stride:
                row.append(line)
                continue
            if is_plain:  # wanted for the curves: it stands for those before it
                self._distance = 0
            else:
                yield from self._parse_last(row)
            yield from self._parse(line)
            row.clear()
        yield from self._parse_last(row)

    def _parse_last(self, row: deque[bytes]) -> Iterator[dict[str, Any]]:
        """The last log of a row that is whole."""
        while row:
            events = list(self._parse(row.pop()))
            if events:
                yield from events
                return

    def _parse(self, line: bytes) -> Iterator[dict[str, Any]]:
        if line.strip():
            events = list(parse_lines([line]))
            self.num_damaged += not events
            yield from events
