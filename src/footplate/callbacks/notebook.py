"""Show a run as a bar and a live table in a Jupyter notebook."""

from __future__ import annotations

import sys
import time
from html import escape
from typing import TYPE_CHECKING, Any

from footplate.batch import find_length
from footplate.callbacks.base import TrainerCallback
from footplate.callbacks.progress import show_end, show_start
from footplate.outputs import IntervalStrategy
from footplate.state import TrainerControl, TrainerState

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

SPEED_METRICS = ("_runtime", "_samples_per_second", "_steps_per_second", "_model_preparation_time")
NOT_SHOWN = ("epoch", "total_flos")


class LiveOutput:
    """HTML in the notebook that can be replaced."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, html: str) -> None:
        """Display `html`, replacing what this output showed before."""
        try:
            from IPython.display import HTML, DisplayHandle
        except ImportError as error:
            raise ImportError(
                "The table in a notebook needs IPython: pip install footplate[notebook]"
            ) from error
        if self._handle is None:
            self._handle = DisplayHandle()
            self._handle.display(HTML(html))
        else:
            self._handle.update(HTML(html))


class Bar:
    """A progress bar; the total may be unknown."""

    seconds_between_drawings = 0.3

    def __init__(self, total: int | None, done: int = 0) -> None:
        self.total = total
        self.done = self.first = done
        self.comment = ""
        self.start_time = time.monotonic()
        self.last_drawn = float("-inf")

    @property
    def is_due(self) -> bool:
        """Whether it is time to draw again; drawing more often would slow the browser down."""
        return time.monotonic() - self.last_drawn >= self.seconds_between_drawings

    def render(self) -> str:
        """The bar as HTML, with the elapsed and the remaining time."""
        self.last_drawn = time.monotonic()
        elapsed = self.last_drawn - self.start_time
        label = f"{self.done}/{'?' if self.total is None else self.total} {format_seconds(elapsed)}"
        num_counted = self.done - self.first
        if self.total is not None and num_counted > 0 and self.done < self.total:
            label += f" < {format_seconds(elapsed / num_counted * (self.total - self.done))}"
        if self.comment:
            label += f", {self.comment}"
        length = "" if self.total is None else f' value="{self.done}" max="{self.total}"'
        return f'<div><progress{length} style="width: 300px"></progress> [{escape(label)}]</div>'


def format_seconds(seconds: float) -> str:
    """Seconds as mm:ss, or h:mm:ss from an hour on."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"


class Table:
    """Rows that are identified by their first cell; a value with a new name adds a column."""

    def __init__(self, columns: list[str]) -> None:
        self.columns = columns
        self.rows: list[dict[str, Any]] = []

    def write(self, values: dict[str, Any]) -> None:
        """Add a row, or update the last one if its first cell is the same."""
        self.columns.extend(name for name in values if name not in self.columns)
        first = self.columns[0]
        if self.rows and self.rows[-1][first] == values[first]:
            self.rows[-1].update(values)
        else:
            self.rows.append(dict(values))

    def render(self) -> str:
        """The table as HTML; names and values may hold anything, so both are escaped."""
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        rows = (
            "".join(f"<td>{escape(format_cell(row.get(name)))}</td>" for name in self.columns)
            for row in self.rows
        )
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def format_cell(value: Any) -> str:
    """A value as text: a float with six decimals, a missing value as "No log"."""
    if value is None:
        return "No log"
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def name_metrics(metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics under the headings of the table: `eval_loss` is Validation Loss, `eval_f1` is F1."""
    named = {}
    for key, value in metrics.items():
        if key in NOT_SHOWN or key.endswith(SPEED_METRICS):
            continue
        words = key.split("_")[1:] or [key]
        name = " ".join(word.capitalize() for word in words)
        named["Validation Loss" if name == "Loss" else name] = value
    return named


class NotebookProgressCallback(TrainerCallback):
    """Shows a bar and a table of losses and metrics that grow during the run."""

    def __init__(self) -> None:
        self._output: LiveOutput | None = None
        self._training: Bar | None = None
        self._table: Table | None = None
        self._prediction: Bar | None = None
        self._last_checkpoint: str | None = None  # that this run has sealed

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Print the facts of the run; show an empty table and the bar."""
        self._last_checkpoint = None
        if not state.is_world_process_zero:
            return
        show_start(args, state, kwargs, sys.stdout)  # plain text in the cell
        columns = [_first_column(args), "Training Loss"]
        if args.eval_strategy != IntervalStrategy.NO:
            columns.append("Validation Loss")
        self._table = Table(columns)
        self._training = Bar(state.max_steps, state.global_step)
        self._prediction = None
        self._output = LiveOutput()
        self._draw()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Move the bar, and draw it if it is time to."""
        if self._training is not None:
            self._training.done = state.global_step
            if self._training.is_due:
                self._training.comment = _describe_epoch(state)
                self._draw()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add a row for a training loss; with an eval_strategy, evaluations add the rows."""
        if self._table is not None and args.eval_strategy == IntervalStrategy.NO and "loss" in (logs or {}):
            self._table.write({"Step": state.global_step, "Training Loss": (logs or {})["loss"]})
            self._draw()

    def on_prediction_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        eval_dataloader: Any = None,
        **kwargs: Any,
    ) -> None:
        """Move the bar of the evaluation."""
        if not state.is_world_process_zero:
            return
        if self._prediction is None:
            self._prediction = Bar(find_length(eval_dataloader))
        self._prediction.done += 1
        if self._prediction.is_due:
            self._draw()

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add a row with the metrics and the last logged training loss."""
        if not state.is_world_process_zero:
            return
        first = _first_column(args)
        losses = (log["loss"] for log in reversed(state.log_history) if "loss" in log)
        row: dict[str, Any] = {first: state.global_step if first == "Step" else _format_epoch(state)}
        row |= {"Training Loss": next(losses, None), **name_metrics(metrics or {})}
        self._prediction = None
        table = self._table or Table([first, "Training Loss", "Validation Loss"])
        table.write(row)
        self._draw(table)

    def on_predict(
        self, args: Any, state: TrainerState, control: TrainerControl, metrics: Any = None, **kwargs: Any
    ) -> None:
        """Remove the bar of the prediction."""
        if self._prediction is not None:
            self._prediction = None
            self._draw()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Draw bar and table one last time and leave them in the notebook."""
        if self._training is not None:
            self._training.done = state.global_step
            self._training.comment = _describe_epoch(state)
            self._draw()
            seconds = time.monotonic() - self._training.start_time
            show_end(args, state, seconds, self._last_checkpoint, sys.stdout)
        self._training = self._table = self._output = None

    def on_seal(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Note the checkpoint, for the end of the run."""
        self._last_checkpoint = str(kwargs["checkpoint"])

    def _draw(self, table: Table | None = None) -> None:
        """Show those of these that exist: the bar of the run, the table, the bar of the evaluation."""
        parts = (self._training, table or self._table, self._prediction)
        html = "".join(part.render() for part in parts if part is not None)
        if self._output is None:
            self._output = LiveOutput()
        self._output.show(html)
        if self._training is None and self._prediction is None:
            self._output = None  # outside training, each evaluation gets its own output


def _first_column(args: TrainingArguments) -> str:
    return "Epoch" if args.eval_strategy == IntervalStrategy.EPOCH else "Step"


def _format_epoch(state: TrainerState) -> str:
    return f"{round(state.epoch or 0, 2):g}"


def _describe_epoch(state: TrainerState) -> str:
    return f"Epoch {_format_epoch(state)}/{state.num_train_epochs}"
