"""Keeps `report.html` up to date while a run goes on, without the run noticing."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from footplate.callbacks.base import TrainerCallback
from footplate.report.history import History
from footplate.report.page import REPORT_NAME, build_page, describe_runs, find_defaults, save_page
from footplate.report.source import RunSource
from footplate.state import TrainerControl, TrainerState

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

logger = logging.getLogger(__name__)

CSV_NAME = "log_history.csv"
LEAST_PAUSE = 10.0  # seconds between two pages
PAUSE_FACTOR = 100.0  # times what the last page took: building costs a run one per cent at most


class ReportCallback(TrainerCallback):
    """Writes `report.html` as training goes, and `log_history.csv` when it is over.

    It reads the run's `events.jsonl`, so it must come after `JournalCallback`. A page that cannot be
    written is said once and stops nothing.
    """

    wants_step_data = False

    def __init__(self) -> None:
        self._writer: ReportWriter | None = None
        self._last_look: weakref.finalize[Any, Any] | None = None
        self._is_training = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start with the first page."""
        if self._last_look is not None:
            self._last_look()  # the run before: an error ended it, or nothing is left to do
        self._writer = self._last_look = None
        self._is_training = True
        if state.is_world_process_zero and args.output_dir is not None:
            self._writer = ReportWriter(args.output_dir, find_defaults(type(args)))
            self._last_look = weakref.finalize(self, self._writer.give_up)
            self._writer.request()

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Ask for a page, which comes when the last one is old enough."""
        if self._writer is not None and self._is_training:
            self._writer.request()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write the page and the table of the whole run."""
        self._is_training = False
        self._finish(state)

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Add an evaluation that follows the run."""
        if not self._is_training:
            self._finish(state)

    def on_predict(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add a prediction that follows the run."""
        if not self._is_training:
            self._finish(state)

    def _finish(self, state: TrainerState) -> None:
        if self._writer is not None:
            self._writer.stop()
            self._writer.write_table(state.log_history)


class ReportWriter:
    """Builds the page of a folder on a thread of its own, seldom enough to cost nothing.

    Args:
        folder: The `output_dir` of the run.
        defaults: What its settings are where nobody sets them.
    """

    def __init__(self, folder: str | os.PathLike[str], defaults: Mapping[str, Any] | None = None) -> None:
        self.folder = Path(folder)
        self.num_built = 0
        self._defaults = defaults
        self._source = RunSource(self.folder)
        self._wanted, self._stopped = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()  # a fork takes this object along, but not the thread
        self._is_broken = self._has_warned = False

    def request(self) -> None:
        """Have the page built soon; returns at once."""
        if not self._wanted.is_set():
            self._wanted.set()
        if self._thread is None:
            self._stopped.clear()
            self._thread = threading.Thread(target=self._work, name="footplate-report", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread and write the page as it must stay."""
        if self._thread is not None:
            self._stopped.set()
            self._wanted.set()
            self._thread.join()
            self._thread = None
        self._build()

    def give_up(self) -> None:
        """Show how far a run came that nobody ended: an error, or the end of the process."""
        if self._thread is not None and self._process == os.getpid():
            self._is_broken = True
            self.stop()

    def write_table(self, log_history: list[dict[str, Any]]) -> None:
        """Write the log history as a table."""
        try:
            History(log_history).to_csv(self.folder / CSV_NAME)
        except Exception as error:  # a table is not worth a run either
            self._warn(CSV_NAME, error)

    def _work(self) -> None:
        pause = 1.0  # for the first page, so that it has something to show
        while not self._stopped.wait(pause):
            self._wanted.wait()
            self._wanted.clear()
            if not self._stopped.is_set():
                pause = max(LEAST_PAUSE, PAUSE_FACTOR * self._build())

    def _build(self) -> float:
        """Read what is new, write the page, and say how many seconds that took."""
        start = time.perf_counter()
        try:
            self._source.update()
            self._source.data.is_broken = self._is_broken
            if self._source.data.begun:
                save_page(build_page(describe_runs([self._source.data], self._defaults)), self._path)
                self.num_built += 1
        except Exception as error:  # a page is never worth a run
            self._warn(REPORT_NAME, error)
        return time.perf_counter() - start

    @property
    def _path(self) -> Path:
        return self.folder / REPORT_NAME

    def _warn(self, name: str, error: Exception) -> None:
        if not self._has_warned:
            logger.warning("%s could not be written: %r. Training goes on.", self.folder / name, error)
        self._has_warned = True
