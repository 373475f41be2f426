"""Shows input, target and prediction of a few rows during training."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from footplate import rng
from footplate.batch import find_labels, ignored_outputs, outputs_without_loss
from footplate.callbacks.base import TrainerCallback
from footplate.comm import find_batch_size, move_to_device, nested_detach, take_rows
from footplate.outputs import IntervalStrategy
from footplate.samples.batch import Row, SampleBatch, tensors_in
from footplate.samples.file import SampleFile
from footplate.samples.formatters import format_plain, pick_formatter
from footplate.samples.predictor import Predictor
from footplate.samples.rows import NumberedBatch, pick_rows, read_batches
from footplate.samples.table import print_samples
from footplate.samples.text import TextReader, plain_value
from footplate.state import TrainerControl, TrainerState
from footplate.wrappers import bare_model

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

logger = logging.getLogger(__name__)

RowFormatter = Callable[[Any, Any, Any], "dict[str, Any]"]
Block = tuple[str, list[Row]]  # a source and its rows


class SampleCallback(TrainerCallback):
    """Shows input, target and prediction of a few rows: on the console, in `samples.jsonl`, in trackers.

    Rows of a dataset are chosen by `data_seed` (or `seed`) and are the same each time and after a resume.
    The run itself does not change: same losses, same weights, same log.

    Args:
        every: Show rows every so many updates; None shows them at each evaluation.
        count: How many rows to show.
        source: "train" for the batch of this update, which needs no further forward; "eval" for fixed rows of
            each evaluation set; or your own dataset. Default: "train", or "eval" if `every` is None.
        formatter: `(inputs, labels, predictions)` of one row to a dict of what to show, usually with the keys
            `input`, `target` and `prediction`, and `correct` to mark wrong rows. Default: chosen by the model
            and the batch.
        console: Whether to print a table.
        file: Whether to write `samples.jsonl` in the output folder.
    """

    may_be_several = True

    def __init__(
        self,
        every: int | None = 50,
        count: int = 10,
        source: Any = None,
        formatter: RowFormatter | None = None,
        console: bool = True,
        file: bool = True,
    ) -> None:
        self.every = every
        self.count = count
        self.source = source if source is not None else ("eval" if every is None else "train")
        self.formatter = formatter
        self.console = console
        self.file = file
        check_settings(every, count, self.source, formatter)
        self._source_name = self.source if isinstance(self.source, str) else None  # None for a dataset
        self.wants_step_data = self._source_name == "train"
        self._file: SampleFile | None = None  # set only during training
        self._kept_batches: dict[str, tuple[Any, list[NumberedBatch]]] = {}  # by source, with its dataset
        self._warned: set[str] = set()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Continue the file from the step the run starts at; raise or warn if there is nothing to show."""
        has_eval_sets = bool(kwargs["predictor"].eval_sets())
        if self._source_name == "eval" and self.every is not None and not has_eval_sets:
            raise ValueError(
                'SampleCallback(source="eval") has nothing to show: pass `eval_dataset` to Trainer, or a '
                "dataset as `source`."
            )
        self._kept_batches.clear()
        self._file = SampleFile(args.output_dir) if self.file and state.is_world_process_zero else None
        if self._file is not None:
            self._file.begin_run(state.global_step)
        if self.every is None and args.eval_strategy == IntervalStrategy.NO:
            self._warn_once(
                "never",
                'Samples are shown at each evaluation, but eval_strategy="no": set it to "steps" or "epoch", '
                "or add SampleCallback(every=...).",
            )

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Stop writing the file: an evaluation after training is not part of the run."""
        self._file = None

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """Show rows after every so many updates."""
        if self.every is None or state.global_step % self.every:
            return None
        return self._show(args, state, control, kwargs)

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """Show rows after an evaluation; of several sets, only after the last."""
        return (
            None if kwargs.get("is_round_end") is False else self.on_round_end(args, state, control, **kwargs)
        )

    def on_round_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """Show rows after the evaluation of several sets."""
        return self._show(args, state, control, kwargs) if self.every is None else None

    def _show(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, shared: dict[str, Any]
    ) -> TrainerControl:
        """Find the rows, then hand them to console, file and trackers."""
        try:
            with rng.scoped(rng.data_seed(args)), torch.no_grad():
                is_train = self._source_name == "train"
                blocks = self._from_train_batch(shared) if is_train else self._from_datasets(args, shared)
        except Exception as error:  # showing samples must never stop training
            self._warn_once("show", f"Samples could not be shown, training goes on. {explain(error)}")
            return control
        for source, rows in blocks if state.is_world_process_zero else ():
            if self.console:
                print_samples(title_of(state.global_step, source, rows), rows)
            if self._file is not None:
                self._file.append(state.global_step, source, rows)
            control = shared["predictor"].tell(args, state, control, samples=rows, source=source)
        return control

    def _from_train_batch(self, shared: dict[str, Any]) -> list[Block]:
        """The first rows of the batch of this update, with the outputs that the loss was computed from."""
        inputs, outputs = shared["inputs"], shared["outputs"]
        if inputs is None or outputs is None:
            self._warn_once(
                "outputs",
                "There are no samples of the training batch: compute_loss gave no outputs. An override must "
                "take return_outputs and return (loss, outputs) if it is true.",
            )
            return []
        answers = outputs_without_loss(outputs, ignored_outputs(shared["model"]), has_loss=True)
        num_rows = min(self.count, find_batch_size(inputs) or 0)
        inputs, answers = (take_rows(nested_detach(part), slice(num_rows)) for part in (inputs, answers))
        labels = find_labels(inputs, shared["predictor"].label_names(), has_own_loss=True)
        return [("train", self._format(list(range(num_rows)), inputs, labels, answers, shared))]

    def _from_datasets(self, args: TrainingArguments, shared: dict[str, Any]) -> list[Block]:
        """Fixed rows of each set, with what the model predicts for them now."""
        predictor: Predictor = shared["predictor"]
        blocks = []
        sets = {"given": self.source} if self._source_name is None else predictor.eval_sets()
        for source, dataset in sets.items():
            rows: list[Row] = []
            for numbers, batch in self._read(source, dataset, args, predictor):
                rows += self._predict(numbers, batch, shared)
            if rows:
                blocks.append((source, rows))
            else:
                self._warn_once("empty", f"There are no samples of {source}: it gave no rows.")
        return blocks

    def _read(
        self, source: str, dataset: Any, args: TrainingArguments, predictor: Predictor
    ) -> list[NumberedBatch]:
        """The rows of a set, read once and kept: a stream or random reads would give other rows next time."""
        known, batches = self._kept_batches.get(source, (None, []))
        if known is not dataset:
            rows, chosen = pick_rows(dataset, self.count, rng.data_seed(args))
            batches = read_batches(predictor.read(chosen) if rows else [], rows, args.eval_batch_size)
            self._kept_batches[source] = (dataset, batches)
        return batches

    def _predict(self, numbers: list[int], batch: Any, shared: dict[str, Any]) -> list[Row]:
        """The rows of a batch with what the model predicts for them."""
        rows, predictor = slice(len(numbers)), shared["predictor"]
        answers, labels = predictor.predict(take_rows(batch, rows))  # a copy: an override may change it
        device = next((answer.device for answer in tensors_in(answers)), "cpu")
        inputs = move_to_device(take_rows(batch, rows), device)
        if labels is None:  # an override of prediction_step may leave them out
            labels = find_labels(inputs, predictor.label_names())
        return self._format(numbers, inputs, labels, answers, shared)

    def _format(
        self, numbers: list[int], inputs: Any, labels: Any, answers: Any, shared: dict[str, Any]
    ) -> list[Row]:
        """The rows in readable form: by the user's formatter, else by the one that suits the task."""
        batch = SampleBatch(
            inputs,
            labels,
            answers,
            model=bare_model(shared["model"]),
            reader=TextReader(shared["processing_class"]),
            label_names=shared["predictor"].label_names(),
        )
        rows = self._format_by_user(batch) if self.formatter is not None else None
        rows = rows if rows is not None else self._format_by_task(batch)
        return [
            {"row": number, **{str(name): plain_value(value) for name, value in row.items()}}
            for number, row in zip(numbers, rows, strict=True)
        ]

    def _format_by_user(self, batch: SampleBatch) -> list[Row] | None:
        """The rows from the user's formatter; None, with a warning, if it fails."""
        assert self.formatter is not None
        try:
            return [check_row(self.formatter(*batch.row(index))) for index in range(batch.num_rows)]
        except Exception as error:
            names = list(batch.inputs) if isinstance(batch.inputs, dict) else type(batch.inputs).__name__
            self._warn_once(
                "formatter",
                f"Your sample formatter failed. {explain(error)} It is called as formatter(inputs, labels, "
                f"predictions) for one row at a time, here with inputs {names}, and returns a dict. Samples "
                "are shown without it, and training goes on.",
            )
            return None

    def _format_by_task(self, batch: SampleBatch) -> list[Row]:
        """The rows from the formatter for this task; if it fails, numbers and shapes."""
        formatter = pick_formatter(batch)
        try:
            return formatter(batch)
        except Exception as error:
            name = formatter.__name__
            self._warn_once("task", f"{name} failed, so samples are plain numbers. {explain(error)}")
            return format_plain(replace(batch, reader=TextReader()))  # the tokenizer may be the cause

    def _warn_once(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            logger.warning("%s", message)


def title_of(step: int, source: str, rows: list[Row]) -> str:
    """The title of a table."""
    judged = [row["correct"] for row in rows if row.get("correct") is not None]
    verdict = f", {len(judged) - sum(judged)} of {len(judged)} wrong" if judged else ""
    return f"\nSamples ({source}) at step {step}{verdict}"


def explain(error: Exception) -> str:
    """The error and the line it was raised at, in one sentence."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{traceback.format_exception_only(error)[-1].strip()}{where}."


def check_row(row: Any) -> Row:
    """Return the row; raise if it is not a dict."""
    if not isinstance(row, dict):
        raise TypeError(f"A sample formatter returns a dict for each row, not {str(row)[:100]!r}.")
    return row


def check_settings(every: int | None, count: int, source: Any, formatter: Any) -> None:
    """Raise if with these settings nothing can be shown."""
    if every is not None and every < 1:
        raise ValueError(f"every={every} is not possible: give a number of updates, at least 1, or None.")
    if count < 1:
        raise ValueError(f"count={count} is not possible: give how many rows to show, at least 1.")
    if isinstance(source, str) and source not in ("train", "eval"):
        raise ValueError(f'source={source!r} is unknown: give "train", "eval" or a dataset.')
    if isinstance(source, str) and source == "train" and every is None:
        raise ValueError(
            'source="train" shows the batch of an update, which an evaluation does not have: set `every`.'
        )
    if formatter is not None and not callable(formatter):
        raise TypeError(f"formatter must be a function of (inputs, labels, predictions), not {formatter!r}.")
