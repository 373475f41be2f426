"""Writes the events of a run to `events.jsonl` as they happen."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from footplate.callbacks.base import TrainerCallback
from footplate.integrations.journal import Journal
from footplate.integrations.run import describe_run
from footplate.integrations.values import final_metrics
from footplate.state import TrainerControl, TrainerState
from footplate.voice import OwnHandler, install_voice

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

MOST_WAITING = 100  # warnings that are kept before a run begins


class JournalCallback(TrainerCallback):
    """Keeps the journal of a run in the main process: a log is on disk before any tracker gets it."""

    wants_step_data = False

    def __init__(self) -> None:
        self.journal: Journal | None = None
        self._run_id: str | None = None
        self._writer: _WarningWriter | None = None

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Keep warnings from now on: what is said while a run is prepared belongs to it too."""
        if state.is_world_process_zero and args.output_dir is not None:
            self._listen()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write that a run begins or resumes, the warnings since its Trainer was made, and later ones."""
        self._run_id = None
        journal = self._begin(args, state, kwargs)
        if journal is not None:
            writer = self._writer if self._writer is not None else self._listen()
            _stop_others(writer)
            writer.begin(journal, state)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        seconds: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Write one line per log."""
        journal = self._begin(args, state, kwargs)
        if journal is not None:
            journal.write(
                "log",
                step=state.global_step,
                epoch=state.epoch,
                number=len(state.log_history),
                logs=logs or {},
                prefixes=list(kwargs.get("metric_prefixes", ())),
                seconds=seconds or {},
                **({"ranks": kwargs["ranks"]} if "ranks" in kwargs else {}),
            )

    def on_predict(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Write the metrics of a prediction, which are not in the log history."""
        journal = self._begin(args, state, kwargs)
        if journal is not None:
            prefixes = list(kwargs.get("metric_prefixes", ()))
            journal.write("predict", step=state.global_step, logs=metrics or {}, prefixes=prefixes)

    def on_samples(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write rows with the model's predictions."""
        journal = self._begin(args, state, kwargs)
        if journal is not None:
            source, rows = kwargs.get("source", "eval"), kwargs.get("samples") or []
            journal.write("samples", step=state.global_step, source=source, rows=rows)

    def on_note(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write what was measured, as an event of its own kind."""
        journal = self._begin(args, state, kwargs)
        if journal is not None:
            journal.write(kwargs["kind"], step=state.global_step, **kwargs["values"])

    def on_seal(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write which checkpoint is complete on disk, and which one is the best so far."""
        journal = self._begin(args, state, kwargs)
        if journal is not None:
            journal.write(
                "save",
                step=kwargs.get("checkpoint_step", 0),
                folder=os.path.relpath(kwargs["checkpoint"], journal.path.parent),
                best_step=state.best_global_step,
                best_metric=state.best_metric,
            )

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write that the run has ended, with the last value of each metric."""
        journal = self._begin(args, state, kwargs)
        if journal is not None:
            metrics, stopped_by = final_metrics(state.log_history), kwargs.get("stopped_by")
            journal.write("end", step=state.global_step, metrics=metrics, stopped_by=stopped_by)
            _stop_others(None)
            self._writer = None

    def _listen(self) -> _WarningWriter:
        """Start to collect warnings."""
        self._writer = writer = _WarningWriter()
        _add(writer)
        # a run that fails has no on_train_end: then its writer is removed when this callback is freed
        weakref.finalize(self, _remove, writer)
        return writer

    def _begin(
        self, args: TrainingArguments, state: TrainerState, shared: Mapping[str, Any]
    ) -> Journal | None:
        """The journal, with the run begun in it; None in processes that do not write one."""
        run_id = shared.get("run_id") or ""
        if self._run_id == run_id:
            return self.journal
        if not state.is_world_process_zero or args.output_dir is None:
            return None
        if self.journal is not None:
            self.journal.close()
        self._run_id, self.journal = run_id, Journal(args.output_dir)
        run = describe_run(args, state, shared.get("model"), run_id)
        # without training, the run begins with its first log, which is in the history already
        run.num_logs -= bool(state.log_history) and not state.max_steps
        self.journal.write("begin", step=run.first_step, **run.to_event())
        return self.journal


# ---- warnings ----


class _WarningWriter(OwnHandler):
    """Writes the warnings of a run, from any thread, into its journal; keeps them until the run begins."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.journal: Journal | None = None
        self.run_state: TrainerState | None = None
        self._waiting: list[dict[str, Any]] = []

    def begin(self, journal: Journal, state: TrainerState) -> None:
        """Write what was kept, and from now on each warning as it comes."""
        self.journal, self.run_state = journal, state
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            journal.write("warning", step=state.global_step, **event)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            event = {
                "level": record.levelname,
                "message": record.getMessage(),
                "tracker": getattr(record, "tracker", None),
                "is_off": getattr(record, "is_off", False),
            }
            if self.journal is not None and self.run_state is not None:
                self.journal.write("warning", step=self.run_state.global_step, **event)
            elif len(self._waiting) < MOST_WAITING and not _is_run_under_way():
                self._waiting.append(event)
        except Exception:
            self.handleError(record)


def _writers() -> list[_WarningWriter]:
    return [h for h in logging.getLogger("footplate").handlers if isinstance(h, _WarningWriter)]


def _is_run_under_way() -> bool:
    return any(writer.journal is not None for writer in _writers())


def _add(writer: _WarningWriter) -> None:
    """Listen with `writer`; of those that wait for a run to begin, only the newest does."""
    for other in _writers():
        if other.journal is None:
            _remove(other)
    install_voice()  # first: with a handler of ours, Python's last resort shows nothing any more
    logging.getLogger("footplate").addHandler(writer)


def _stop_others(writer: _WarningWriter | None) -> None:
    """Write warnings with `writer` alone from now on; a run that failed may have left its own writer."""
    for other in _writers():
        if other is not writer:
            _remove(other)
    if writer is not None:
        logging.getLogger("footplate").addHandler(writer)  # does nothing if it is there


def _remove(writer: _WarningWriter) -> None:
    logging.getLogger("footplate").removeHandler(writer)
