"""Writes down a run in `events.jsonl` as it happens."""

from __future__ import annotations

import logging
import os
import weakref
from typing import TYPE_CHECKING, Any

from footplate.callbacks.base import TrainerCallback
from footplate.integrations.journal import Journal
from footplate.integrations.run import describe_run
from footplate.integrations.values import final_metrics
from footplate.state import TrainerControl, TrainerState

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments


class JournalCallback(TrainerCallback):
    """Keeps the journal of a run in the main process: a log is on disk before a tracker hears of it."""

    wants_step_data = False

    def __init__(self) -> None:
        self.journal: Journal | None = None
        self._run_id: str | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin a run, or its next leg, and listen to warnings."""
        self._run_id = None
        journal = self._begin(args, state, **kwargs)
        if journal is not None:
            writer = _WarningWriter(journal, state)
            _listen(writer)
            weakref.finalize(self, _forget, writer)  # a run that breaks off says nothing, and goes with this

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        seconds: dict[str, float] | None = None,
        metric_prefixes: Any = (),
        **kwargs: Any,
    ) -> None:
        """One line per log."""
        journal = self._begin(args, state, **kwargs)
        if journal is not None:
            journal.write(
                "log",
                step=state.global_step,
                epoch=state.epoch,
                number=len(state.log_history),
                logs=logs or {},
                prefixes=list(metric_prefixes),
                seconds={name: round(value, 6) for name, value in (seconds or {}).items()},
            )

    def on_predict(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        metric_prefixes: Any = (),
        **kwargs: Any,
    ) -> None:
        """The metrics of a prediction, which are not logged."""
        journal = self._begin(args, state, **kwargs)
        if journal is not None:
            prefixes = list(metric_prefixes)
            journal.write("predict", step=state.global_step, logs=metrics or {}, prefixes=prefixes)

    def on_samples(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        samples: list[dict[str, Any]] | None = None,
        source: str = "eval",
        **kwargs: Any,
    ) -> None:
        """What the model says about a few rows."""
        journal = self._begin(args, state, **kwargs)
        if journal is not None:
            journal.write("samples", step=state.global_step, source=source, rows=samples or [])

    def on_seal(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        checkpoint: str = "",
        checkpoint_step: int = 0,
        **kwargs: Any,
    ) -> None:
        """A checkpoint that is whole on the disk, and which one is the best so far."""
        journal = self._begin(args, state, **kwargs)
        if journal is not None:
            journal.write(
                "save",
                step=checkpoint_step,
                folder=os.path.relpath(checkpoint, journal.path.parent),
                best_step=state.best_global_step,
                best_metric=state.best_metric,
            )

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The end of the run, and the last value of everything."""
        journal = self._begin(args, state, **kwargs)
        if journal is not None:
            journal.write("end", step=state.global_step, metrics=final_metrics(state.log_history))
            _listen(None)

    def _begin(self, args: TrainingArguments, state: TrainerState, **kwargs: Any) -> Journal | None:
        """The journal, with the run begun in it; None in processes that do not write one."""
        run_id = kwargs.get("run_id") or ""
        if self._run_id == run_id:
            return self.journal
        if not state.is_world_process_zero or args.output_dir is None:
            return None
        if self.journal is not None:
            self.journal.close()
        self._run_id, self.journal = run_id, Journal(args.output_dir)
        run = describe_run(args, state, kwargs.get("model"), run_id)
        is_included = bool(state.log_history) and not state.max_steps  # by a log that nobody trained for
        run.num_logs -= is_included
        self.journal.write("begin", step=run.first_step, **run.to_event())
        return self.journal


# ---- warnings ----


class _WarningWriter(logging.Handler):
    """Writes the warnings of a run into its journal, from whatever thread they come."""

    def __init__(self, journal: Journal, state: TrainerState) -> None:
        super().__init__(logging.WARNING)
        self.journal, self.run_state = journal, state

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.journal.write(
                "warning",
                step=self.run_state.global_step,
                level=record.levelname,
                message=record.getMessage(),
                tracker=getattr(record, "tracker", None),
                is_off=getattr(record, "is_off", False),
            )
        except Exception:
            self.handleError(record)


def _listen(writer: _WarningWriter | None) -> None:
    """Let `writer` hear the warnings from now on, and nobody before it: a run that broke off left its own."""
    root = logging.getLogger("footplate")
    for handler in root.handlers[:]:
        if isinstance(handler, _WarningWriter):
            _forget(handler)
    if writer is not None:
        root.addHandler(writer)


def _forget(writer: _WarningWriter) -> None:
    logging.getLogger("footplate").removeHandler(writer)
