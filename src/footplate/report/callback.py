"""Keeps `report.html` up to date during a run, on a thread of its own."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from footplate.callbacks.base import TrainerCallback
from footplate.report.files import save_text
from footplate.report.history import History
from footplate.report.page import REPORT_NAME, build_page, describe_runs
from footplate.report.source import RunSource
from footplate.state import TrainerControl, TrainerState

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

logger = logging.getLogger(__name__)

CSV_NAME = "log_history.csv"
LEAST_PAUSE = 10.0  # seconds between two pages
PAUSE_FACTOR = 100.0  # pause this many times as long as the last page took: at most 1 % of the run


class ReportCallback(TrainerCallback):
    """Writes `report.html` during training, and `log_history.csv` when training ends.

    It reads the run's `events.jsonl`, so it must come after `JournalCallback`. If a page cannot be written,
    there is one warning and training continues.
    """

    wants_step_data = False

    def __init__(self) -> None:
        self._writer: ReportWriter | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._is_training = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Ask for the first page."""
        if self._finalizer is not None:
            self._finalizer()  # writes the last page of an earlier run that failed; else does nothing
        self._writer = self._finalizer = None
        self._is_training = True
        if state.is_world_process_zero and args.output_dir is not None:
            self._writer = ReportWriter(args.output_dir)
            # a run that fails has no on_train_end: then this is called when the callback is freed
            self._finalizer = weakref.finalize(self, self._writer.stop_after_error)
            self._writer.request()

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Ask for a page; it is built when the last one is old enough."""
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
        """Add an evaluation that comes after training."""
        if not self._is_training:
            self._finish(state)

    def on_predict(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *_: Any, **kwargs: Any
    ) -> None:
        """Add a prediction that comes after training."""
        self.on_evaluate(args, state, control)

    def _finish(self, state: TrainerState) -> None:
        if self._writer is not None:
            self._writer.stop()
            self._writer.write_table(state.log_history)


class ReportWriter:
    """Builds the page of a folder on its own thread, with long pauses so that the run is not slowed down.

    Args:
        folder: The `output_dir` of the run.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).absolute()  # a thread of a tracker may change the working folder
        self.num_built = 0
        self._source = RunSource(self.folder)
        self._wanted, self._stopped = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()  # a forked process has a copy of this object, but not the thread
        self._is_due = False  # asked for, and the final page is not written yet
        self._is_broken = self._has_warned = self._has_no_thread = self._ends_itself = False

    def request(self) -> None:
        """Ask for a page; returns at once."""
        if not self._wanted.is_set():
            self._wanted.set()
        self._is_due = True
        if self._thread is None and not self._has_no_thread:
            self._stopped.clear()
            thread = threading.Thread(target=self._work, name="footplate-report", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                self._has_no_thread = True
                logger.warning("%s is written only when training ends: %s.", self.folder / REPORT_NAME, error)
            else:
                self._thread = thread

    def stop(self) -> None:
        """End the thread and write the final page."""
        if self._thread is not None:
            self._stopped.set()
            self._wanted.set()
            self._thread.join()
            self._thread = None
        self._is_due = False
        self._build()

    def stop_after_error(self) -> None:
        """Write the page of a run that did not end: an error was raised, or the process exits."""
        if self._is_due and self._process == os.getpid():
            self._is_broken = True
            if self._thread is threading.current_thread():  # memory is collected on any thread, also on ours
                self._stopped.set()
                self._ends_itself = True
            else:
                self.stop()

    def write_table(self, log_history: list[dict[str, Any]]) -> None:
        """Write the log history as a table."""
        try:
            History(log_history).to_csv(self.folder / CSV_NAME)
        except Exception as error:  # a table must not stop training
            self._warn(CSV_NAME, error)

    def _work(self) -> None:
        pause = 1.0  # before the first page, so that there is something to show
        while not self._stopped.wait(pause):
            self._wanted.wait()
            self._wanted.clear()
            if not self._stopped.is_set():
                pause = max(LEAST_PAUSE, PAUSE_FACTOR * self._build())
        if self._ends_itself:
            self._is_due = False
            self._build()

    def _build(self) -> float:
        """Read new events and write the page; return the seconds that took."""
        start = time.perf_counter()
        try:
            self._source.update()
            self._source.data.is_broken = self._is_broken
            if self._source.data.begun:
                page = build_page(describe_runs([self._source.data]))
                save_text(page, self.folder / REPORT_NAME)
                self.num_built += 1
        except Exception as error:  # a page must not stop training
            self._warn(REPORT_NAME, error)
        return time.perf_counter() - start

    def _warn(self, name: str, error: Exception) -> None:
        if not self._has_warned:
            logger.warning("%s could not be written: %r. Training goes on.", self.folder / name, error)
        self._has_warned = True
