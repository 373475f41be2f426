"""How far a run is: a bar on a terminal, lines that a program can read elsewhere."""

from __future__ import annotations

import json
import re
import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

from footplate.callbacks.base import TrainerCallback
from footplate.state import TrainerControl, TrainerState

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

PLAIN_VALUE = re.compile(r"[!#-<>-~]+")  # printable ASCII without space, quote and equals sign
ODD_IN_KEY = re.compile(r"[^!#-<>-~]")


def format_line(values: dict[str, Any], max_str_len: int = 100) -> str:
    """One line of `key=value` pairs; a value with a space, a quote or the like is a JSON string."""
    return " ".join(
        f"{ODD_IN_KEY.sub('_', key)}={_format_value(value, max_str_len)}" for key, value in values.items()
    )


def _format_value(value: Any, max_str_len: int) -> str:
    if hasattr(value, "tolist"):
        value = value.tolist()  # host sync, where a tensor was logged
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    if len(text) > max_str_len:
        text = text[:max_str_len] + "..."
    return text if PLAIN_VALUE.fullmatch(text) else json.dumps(text)


def find_length(loader: Any) -> int | None:
    """Batches in a loader, or None where it cannot know."""
    try:
        return len(loader)
    except (TypeError, AttributeError, NotImplementedError):
        return None


def find_terminal() -> TextIO | None:
    """The stream to draw a bar on: the first of stderr and stdout that a person looks at."""
    for stream in (sys.stderr, sys.stdout):
        if stream is not None and stream.isatty():
            return stream
    return None


class ProgressCallback(TrainerCallback):
    """Bars for training and evaluation on a terminal; elsewhere one line of `key=value` pairs per log.

    Args:
        max_str_len: Logged strings longer than this are cut.
    """

    wants_step_data = False
    seconds_between_lines = 10.0  # of one evaluation, off a terminal

    def __init__(self, max_str_len: int = 100) -> None:
        self.max_str_len = max_str_len
        self.training_bar: Any = None
        self.prediction_bar: Any = None
        self.current_step = 0
        self._first_step = 0
        self._start_time: float | None = None  # of the training under way
        self._evaluation: EvaluationLines | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Open the bar, or print where the run starts."""
        self._close_training()  # a run that an exception ended has left its own
        self._close_evaluation()
        self.current_step = self._first_step = state.global_step
        self._start_time = time.monotonic()
        if not state.is_world_process_zero:
            return
        terminal = find_terminal()
        if terminal is not None:
            from tqdm import tqdm

            self.training_bar = tqdm(
                total=state.max_steps, initial=state.global_step, file=terminal, dynamic_ncols=True
            )
        else:
            self._print("train_begin", state, {"num_train_epochs": state.num_train_epochs})

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Move the bar; tqdm itself decides when to draw."""
        if self.training_bar is not None:
            self.training_bar.update(state.global_step - self.current_step)
            self.current_step = state.global_step

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Print the log, and how long the run will take from here."""
        if not state.is_world_process_zero or logs is None:
            return
        values = {key: value for key, value in logs.items() if key != "total_flos"}
        steps_done, steps_left = state.global_step - self._first_step, state.max_steps - state.global_step
        if self._start_time is not None and steps_done > 0 and steps_left > 0:
            seconds_per_step = (time.monotonic() - self._start_time) / steps_done
            values.setdefault("eta_seconds", round(seconds_per_step * steps_left, 1))
        self._print("log", state, values)

    def on_prediction_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        eval_dataloader: Any = None,
        **kwargs: Any,
    ) -> None:
        """Move the bar of the evaluation, or print a line now and then."""
        if not state.is_world_process_zero:
            return
        if self.prediction_bar is None and self._evaluation is None:
            self._open_evaluation(find_length(eval_dataloader))
        if self.prediction_bar is not None:
            self.prediction_bar.update(1)
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
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Close the bar of the prediction."""
        self._close_evaluation()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close the bar, or print where the run ended."""
        if self._start_time is not None and self.training_bar is None and state.is_world_process_zero:
            seconds = time.monotonic() - self._start_time
            self._print("train_end", state, {"elapsed_seconds": round(seconds, 1)})
        self._close_training()

    def _print(self, event: str, state: TrainerState, values: dict[str, Any]) -> None:
        """One line on stdout, above the bars if there are any."""
        where = {"event": event, "step": state.global_step, "max_steps": state.max_steps}
        line = format_line({**where, **values}, self.max_str_len)
        bar = self.training_bar if self.training_bar is not None else self.prediction_bar
        if bar is not None:
            bar.write(line, file=sys.stdout)
        else:
            print(line, flush=True)  # a pipe is read while the run lasts

    def _open_evaluation(self, num_batches: int | None) -> None:
        terminal = find_terminal()
        if terminal is None:
            self._evaluation = EvaluationLines(num_batches, self.seconds_between_lines)
            return
        from tqdm import tqdm

        is_alone = self.training_bar is None
        self.prediction_bar = tqdm(total=num_batches, leave=is_alone, file=terminal, dynamic_ncols=True)

    def _close_evaluation(self) -> None:
        if self.prediction_bar is not None:
            self.prediction_bar.close()
        self.prediction_bar = self._evaluation = None

    def _close_training(self) -> None:
        if self.training_bar is not None:
            self.training_bar.close()
        self.training_bar = self._start_time = None


class EvaluationLines:
    """Decides after which batches of an evaluation a line is due: one per tenth, none soon after another."""

    def __init__(self, num_batches: int | None, seconds_between_lines: float) -> None:
        self.num_batches = num_batches
        self.seconds_between_lines = seconds_between_lines
        self.num_done = 0
        self.last_tenth = 0
        self.start_time = self.last_time = time.monotonic()

    def advance(self) -> dict[str, Any] | None:
        """Count a batch, and return what to print if a line is due."""
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

    wants_step_data = False

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Print a copy of the log with short numbers."""
        if state.is_local_process_zero:
            shown = {key: value for key, value in (logs or {}).items() if key != "total_flos"}
            print(
                {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in shown.items()}
            )


def default_progress_callback(disable_tqdm: bool) -> type[TrainerCallback]:
    """The callback that shows progress here: a dictionary per log, a live table in a notebook, or a bar.

    Args:
        disable_tqdm: Whether the user wants no bars.
    """
    if disable_tqdm:
        return PrinterCallback
    if is_in_notebook():
        from footplate.callbacks.notebook import NotebookProgressCallback

        return NotebookProgressCallback
    return ProgressCallback


def is_in_notebook() -> bool:
    """Whether this process is a Jupyter kernel; IPython is not imported to find out."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None
