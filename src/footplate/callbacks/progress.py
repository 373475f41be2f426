"""Show the progress of a run: a bar and short lines on a terminal, else lines that a program can read."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from footplate.batch import find_length
from footplate.callbacks.base import TrainerCallback
from footplate.callbacks.facts import describe_end, describe_start, format_end, format_start
from footplate.callbacks.lines import Columns, format_line, format_short
from footplate.state import TrainerControl, TrainerState
from footplate.voice import is_quiet, is_terminal, report_failed_stream, say

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

BAR_FORMAT = (
    "{desc}: {percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]"
)


def find_terminal() -> TextIO | None:
    """The stream to draw a bar on: stderr or stdout, whichever is a terminal; None if neither is."""
    return next((stream for stream in (sys.stderr, sys.stdout) if is_terminal(stream)), None)


def open_bar(total: int | None, **settings: Any) -> Any:
    """A tqdm bar on the terminal; None if there is no terminal, or if it cannot be drawn."""
    terminal = find_terminal()
    if terminal is None:
        return None
    from tqdm import tqdm

    form: dict[str, Any] = {} if total is None else {"bar_format": BAR_FORMAT}
    try:
        return tqdm(total=total, file=terminal, dynamic_ncols=True, **form, **settings)
    except (OSError, ValueError) as error:  # the terminal is gone: training goes on without it
        report_failed_stream(terminal, error)
        return None


def draw(bar: Any, action: Callable[..., Any], *values: Any) -> None:
    """Let a bar do something; where its terminal is gone, it is switched off and training goes on."""
    try:
        action(*values)
    except (OSError, ValueError) as error:
        bar.disable = True
        report_failed_stream(bar.fp, error)


class ProgressCallback(TrainerCallback):
    """Bars and short lines on a terminal; elsewhere one line of `key=value` pairs per log.

    When training begins and ends, the facts of the run are shown where bars would be: on stderr.

    Args:
        max_str_len: Logged strings longer than this are cut.
    """

    seconds_between_lines = 10.0  # during an evaluation, without a terminal

    def __init__(self, max_str_len: int = 100) -> None:
        self.max_str_len = max_str_len
        self.training_bar: Any = None
        self.prediction_bar: Any = None
        self.current_step = 0
        self._first_step = 0
        self._start_time: float | None = None  # of the current training
        self._evaluation: EvaluationLines | None = None
        self._columns = Columns(max_str_len)
        self._last_checkpoint: str | None = None  # that this run has sealed

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Show the facts of the run; open the bar, or print where the run starts."""
        self._close_training()  # if the last run ended with an exception, its bars are still open
        self._close_evaluation()
        self.current_step = self._first_step = state.global_step
        self._start_time = time.monotonic()
        self._columns, self._last_checkpoint = Columns(self.max_str_len), None
        if not state.is_world_process_zero:
            return
        show_start(args, state, kwargs)
        self.training_bar = open_bar(
            state.max_steps, initial=state.global_step, desc="train", unit=" updates"
        )
        if self.training_bar is None:
            self._print("train_begin", state, {"num_train_epochs": state.num_train_epochs})

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Move the bar; tqdm itself decides when to draw."""
        if self.training_bar is not None:
            draw(self.training_bar, self.training_bar.update, state.global_step - self.current_step)
            self.current_step = state.global_step

    def on_log(
        self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any
    ) -> None:
        """Show the log; where no bar does, with the estimated time until the end of the run."""
        if not state.is_world_process_zero or logs is None:
            return
        if self.training_bar is not None and "loss" in logs:
            loss = f"loss {format_short(logs['loss'], 20)}"
            draw(self.training_bar, self.training_bar.set_postfix_str, loss, False)
        if is_terminal(sys.stdout):
            prefixes = (
                *kwargs.get("metric_prefixes", ("eval", "test")),
                kwargs.get("evaluation_prefix", "eval"),
            )
            width = shutil.get_terminal_size((100, 24)).columns
            say(self._columns.format(state.global_step, state.max_steps, logs, prefixes, width), sys.stdout)
            return
        values = {key: value for key, value in logs.items() if key != "total_flos"}
        steps_done, steps_left = state.global_step - self._first_step, state.max_steps - state.global_step
        if self._start_time is not None and steps_done > 0 and steps_left > 0:
            seconds_per_step = (time.monotonic() - self._start_time) / steps_done
            values.setdefault("eta_seconds", round(seconds_per_step * steps_left, 1))
        self._print("log", state, values, at_once=False)

    def on_prediction_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        eval_dataloader: Any = None,
        **kwargs: Any,
    ) -> None:
        """Move the bar of the evaluation, or print a line if one is due."""
        if not state.is_world_process_zero:
            return
        if self.prediction_bar is None and self._evaluation is None:
            name = str(kwargs.get("evaluation_prefix", "eval")).replace("_", " ")
            self._open_evaluation(find_length(eval_dataloader), name)
        if self.prediction_bar is not None:
            draw(self.prediction_bar, self.prediction_bar.update, 1)
        elif self._evaluation is not None:
            line = self._evaluation.advance()
            if line is not None:
                self._print("evaluation", state, line)

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close the bar of the evaluation."""
        self._close_evaluation()

    def on_predict(
        self, args: Any, state: TrainerState, control: TrainerControl, metrics: Any = None, **kwargs: Any
    ) -> None:
        """Close the bar of the prediction."""
        self._close_evaluation()

    def on_seal(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Note the checkpoint, for the end of the run."""
        self._last_checkpoint = str(kwargs["checkpoint"])

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close the bar, or print where the run ended; show what came of it."""
        started, has_bar = self._start_time, self.training_bar is not None
        self._close_training()
        if started is None or not state.is_world_process_zero:
            return
        seconds = time.monotonic() - started
        if not has_bar:
            self._print("train_end", state, {"elapsed_seconds": round(seconds, 1)})
        show_end(args, state, seconds, self._last_checkpoint)

    def _print(self, event: str, state: TrainerState, values: dict[str, Any], at_once: bool = True) -> None:
        """One line on stdout, above the bars if there are any."""
        where = {"event": event, "step": state.global_step, "max_steps": state.max_steps}
        say(format_line({**where, **values}, self.max_str_len), sys.stdout, at_once)

    def _open_evaluation(self, num_batches: int | None, name: str) -> None:
        # beside the bar of training, this bar disappears at its end
        leave = self.training_bar is None
        self.prediction_bar = open_bar(num_batches, leave=leave, desc=name, unit=" batches")
        if self.prediction_bar is None:
            self._evaluation = EvaluationLines(num_batches, self.seconds_between_lines)

    def _close_evaluation(self) -> None:
        if self.prediction_bar is not None:
            draw(self.prediction_bar, self.prediction_bar.close)
        self.prediction_bar = self._evaluation = None

    def _close_training(self) -> None:
        if self.training_bar is not None:
            draw(self.training_bar, self.training_bar.close)
        self.training_bar = self._start_time = None


def show_start(args: Any, state: TrainerState, shared: dict[str, Any], stream: TextIO | None = None) -> None:
    """Show what a run is made of: a block for people on a terminal or `stream`, else a line on stderr."""
    if shared.get("plan") is None or is_quiet():  # a loop of the user's own has no plan
        return
    facts = describe_start(
        args,
        state,
        shared.get("model"),
        shared["plan"],
        shared.get("train_dataloader"),
        shared.get("resumed_from"),
    )
    reader = stream or find_terminal()
    if reader is not None:
        say(format_start(facts), reader)
    else:
        say(format_line({"event": "run_begin", **facts}, max_str_len=1000), sys.stderr)


def show_end(
    args: Any, state: TrainerState, seconds: float, checkpoint: str | None, stream: TextIO | None = None
) -> None:
    """Show what came of a run, in the same place and form as its start."""
    if not hasattr(args, "metric_for_best_model") or is_quiet():  # the first: a loop of the user's own
        return
    facts = describe_end(args, state, seconds, checkpoint)
    reader = stream or find_terminal()
    if reader is not None:
        say(format_end(facts), reader)
    else:
        say(format_line({"event": "run_end", **facts}, max_str_len=1000), sys.stderr)


class EvaluationLines:
    """Decides after which batches to print: at most ten times, and not more often than the given seconds."""

    def __init__(self, num_batches: int | None, seconds_between_lines: float) -> None:
        self.num_batches = num_batches
        self.seconds_between_lines = seconds_between_lines
        self.num_done = 0
        self.last_tenth = 0
        self.start_time = self.last_time = time.monotonic()

    def advance(self) -> dict[str, Any] | None:
        """Count a batch; return what to print if it is time to print."""
        self.num_done += 1
        now = time.monotonic()
        tenth = 10 * self.num_done // self.num_batches if self.num_batches else self.last_tenth + 1
        if tenth == self.last_tenth or now - self.last_time < self.seconds_between_lines:
            return None
        self.last_tenth, self.last_time = tenth, now
        elapsed = now - self.start_time
        line: dict[str, Any] = {"batch": self.num_done, "elapsed_seconds": round(elapsed, 1)}
        if self.num_batches:
            seconds_left = elapsed / self.num_done * (self.num_batches - self.num_done)
            line |= {"num_batches": self.num_batches, "eta_seconds": round(seconds_left, 1)}
        return line


class PrinterCallback(TrainerCallback):
    """Prints each log as a dictionary and nothing else."""

    def on_log(
        self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any
    ) -> None:
        """Print a copy of the log with short numbers."""
        if state.is_local_process_zero:
            shown = {key: value for key, value in (logs or {}).items() if key != "total_flos"}
            short = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in shown.items()}
            say(str(short), sys.stdout)


def default_progress_callback(disable_tqdm: bool) -> type[TrainerCallback]:
    """The callback that shows progress: a dictionary per log, a live table in a notebook, or a bar.

    Args:
        disable_tqdm: True prints logs without bars.
    """
    if disable_tqdm:
        return PrinterCallback
    if is_in_notebook():
        from footplate.callbacks.notebook import NotebookProgressCallback

        return NotebookProgressCallback
    return ProgressCallback


def is_in_notebook() -> bool:
    """Whether this process is a Jupyter kernel; checked without importing IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None
