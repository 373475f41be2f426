"""What the model says while it trains: input, target and prediction of a few rows."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from footplate.callbacks.base import TrainerCallback
from footplate.callbacks.formatters import format_plain, pick_formatter
from footplate.callbacks.sample_batch import (
    Row,
    SampleBatch,
    TextReader,
    answers_of,
    labels_of,
    plain_row,
    take_rows,
)
from footplate.callbacks.sample_file import SampleFile
from footplate.callbacks.sample_rows import NumberedBatch, pick_rows, read_batches, seeded_generators
from footplate.callbacks.sample_table import print_samples
from footplate.comm import find_batch_size, move_to_device
from footplate.outputs import IntervalStrategy
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
        every: Updates between two looks; None for one look at each evaluation.
        count: How many rows to show.
        source: "train" for the batch just learned from, which costs no further forward; "eval" for fixed rows
            of each evaluation set; or a dataset of your own. Default: "train", or "eval" if `every` is None.
        formatter: `(inputs, labels, predictions)` of one row to a dict of what to show, usually with the keys
            `input`, `target` and `prediction`, and `correct` to have wrong rows marked. Default: chosen by
            what model and batch look like.
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
        self.wants_step_data = self.is_of_train
        check_settings(every, count, self.source, formatter)
        self._file: SampleFile | None = None
        self._kept: dict[str, tuple[Any, list[NumberedBatch]]] = {}  # by source: a dataset and what was read
        self._said: set[str] = set()

    @property
    def is_of_train(self) -> bool:
        """Whether the rows are those of the training batch."""
        return isinstance(self.source, str) and self.source == "train"

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take up the file where the run goes on, and say it if nothing would ever be shown."""
        is_of_eval = isinstance(self.source, str) and self.source == "eval"
        if is_of_eval and self.every is not None and kwargs["trainer"].eval_dataset is None:
            raise ValueError(
                'SampleCallback(source="eval") has nothing to show: pass `eval_dataset` to Trainer, or a '
                "dataset as `source`."
            )
        self._kept.clear()
        self._file = SampleFile(args.output_dir) if self.file and state.is_world_process_zero else None
        if self._file is not None:
            self._file.begin_run(state.global_step)
        if self.every is None and args.eval_strategy == IntervalStrategy.NO:
            self._warn_once(
                "never",
                'Samples are shown at each evaluation, but eval_strategy="no": set it to "steps" or "epoch", '
                "or add SampleCallback(every=...).",
            )

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
        """Show rows after each round of evaluation."""
        if self.every is not None or kwargs.get("is_round_end") is False:
            return None
        return self._show(args, state, control, kwargs)

    def _show(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, shared: dict[str, Any]
    ) -> TrainerControl:
        """Get the rows, then hand them to console, file and trackers."""
        owner = shared["trainer"]
        try:
            with seeded_generators(data_seed(args)), torch.no_grad():
                blocks = self._of_train_batch(shared) if self.is_of_train else self._of_datasets(args, shared)
        except Exception as error:  # whoever wants to see samples wants the run to go on first of all
            self._warn_once("show", f"Samples could not be shown, training goes on. {explain(error)}")
            return control
        for source, rows in blocks if state.is_world_process_zero else ():
            if self.console:
                print_samples(title_of(state.global_step, source, rows), rows)
            if self._file is not None and owner.is_in_train:
                self._file.append(state.global_step, source, rows)
            control = owner.callback_handler.call_event(
                "on_samples", args, state, control, samples=rows, source=source
            )
        return control

    def _of_train_batch(self, shared: dict[str, Any]) -> list[Block]:
        """The first rows of the batch just seen, and what the model answered then."""
        inputs, outputs = shared.get("inputs"), shared.get("outputs")
        if inputs is None or outputs is None:
            self._warn_once(
                "outputs",
                "There are no samples of the training batch: compute_loss gave no outputs. Let an override "
                "take return_outputs and return (loss, outputs) where it is true.",
            )
            return []
        config = getattr(bare_model(shared["model"]), "config", None)
        answers = answers_of(outputs, getattr(config, "keys_to_ignore_at_inference", None) or ())
        num_rows = min(self.count, find_batch_size(inputs) or 0)
        inputs, answers = take_rows(inputs, num_rows), take_rows(answers, num_rows)
        labels = labels_of(inputs, shared["trainer"].label_names)
        return [("train", self._format(list(range(num_rows)), inputs, labels, answers, shared))]

    def _of_datasets(self, args: TrainingArguments, shared: dict[str, Any]) -> list[Block]:
        """Fixed rows of each set, and what the model answers to them now."""
        blocks = []
        for source, dataset in self._find_datasets(shared).items():
            rows: list[Row] = []
            for numbers, batch in self._read(source, dataset, args, shared["trainer"]):
                rows += self._predict(numbers, batch, shared)
            if rows:
                blocks.append((source, rows))
            else:
                self._warn_once("empty", f"There are no samples of {source}: it gave no row to look at.")
        return blocks

    def _find_datasets(self, shared: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(self.source, str):
            return {"given": self.source}
        owner = shared["trainer"]
        evaluated = owner._current_eval_dataset  # evaluate() may have been given another
        datasets = owner.eval_dataset if evaluated is None else evaluated
        if isinstance(datasets, dict):
            return {f"eval_{name}": dataset for name, dataset in datasets.items()}
        return {} if datasets is None else {"eval": datasets}

    def _read(self, source: str, dataset: Any, args: TrainingArguments, owner: Any) -> list[NumberedBatch]:
        """The rows of a set, read once and kept: a stream is not read again, and nothing is drawn anew."""
        known, batches = self._kept.get(source, (None, []))
        if known is not dataset:
            rows, chosen = pick_rows(dataset, self.count, data_seed(args))
            loader = owner.get_eval_dataloader(chosen) if rows else []
            batches = read_batches(loader, rows, args.eval_batch_size)
            self._kept[source] = (dataset, batches)
        return batches

    def _predict(self, numbers: list[int], batch: Any, shared: dict[str, Any]) -> list[Row]:
        owner = shared["trainer"]
        given = take_rows(batch, len(numbers))  # new containers: an override may pop from them
        answers, labels = owner._predict_aside(given)
        device = next((value.device for value in SampleBatch(None, None, answers).answers), "cpu")
        inputs = move_to_device(take_rows(batch, len(numbers)), device)
        if labels is None and isinstance(inputs, Mapping):  # no loss came of them, but there they are
            labels = labels_of(inputs, owner.label_names)
        return self._format(numbers, inputs, labels, answers, shared)

    def _format(
        self, numbers: list[int], inputs: Any, labels: Any, answers: Any, shared: dict[str, Any]
    ) -> list[Row]:
        """The rows in readable form: by the user's formatter, else by the one that suits."""
        batch = SampleBatch(
            inputs,
            labels,
            answers,
            model=bare_model(shared["model"]),
            reader=TextReader(shared.get("processing_class")),
            label_names=shared["trainer"].label_names,
        )
        rows = self._format_by_own(batch) if self.formatter is not None else None
        rows = rows if rows is not None else self._format_by_task(batch)
        return [{"row": number, **plain_row(row)} for number, row in zip(numbers, rows, strict=True)]

    def _format_by_own(self, batch: SampleBatch) -> list[Row] | None:
        """What the user's formatter makes of each row; None, and a word about it, where it fails."""
        assert self.formatter is not None
        try:
            rows = [self.formatter(*batch.row(index)) for index in range(batch.num_rows)]
            for row in rows:
                check_row(row)
            return rows
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
        formatter = pick_formatter(batch)
        try:
            return formatter(batch)
        except Exception as error:
            name = formatter.__name__
            self._warn_once("task", f"{name} failed, so samples are plain numbers. {explain(error)}")
            return format_plain(replace(batch, reader=TextReader()))  # a tokenizer may be the reason

    def _warn_once(self, kind: str, message: str) -> None:
        if kind not in self._said:
            self._said.add(kind)
            logger.warning("%s", message)


def data_seed(args: TrainingArguments) -> int:
    """The seed that decides about data."""
    return args.seed if args.data_seed is None else args.data_seed


def title_of(step: int, source: str, rows: list[Row]) -> str:
    """What stands above a table."""
    judged = [row["correct"] for row in rows if row.get("correct") is not None]
    verdict = f", {len(judged) - sum(judged)} of {len(judged)} wrong" if judged else ""
    return f"\nSamples ({source}) at step {step}{verdict}"


def explain(error: Exception) -> str:
    """What was raised, and where."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{traceback.format_exception_only(error)[-1].strip()}{where}."


def check_row(row: Any) -> None:
    """Refuse what is no row."""
    if not isinstance(row, dict):
        raise TypeError(f"A sample formatter returns a dict for each row, not {str(row)[:100]!r}.")


def check_settings(every: int | None, count: int, source: Any, formatter: Any) -> None:
    """Refuse settings that show nothing."""
    if every is not None and every < 1:
        raise ValueError(f"every={every} is not possible: give a number of updates from 1 on, or None.")
    if count < 1:
        raise ValueError(f"count={count} is not possible: give how many rows to show, from 1 on.")
    if isinstance(source, str) and source not in ("train", "eval"):
        raise ValueError(f'source={source!r} is unknown: give "train", "eval" or a dataset.')
    if isinstance(source, str) and source == "train" and every is None:
        raise ValueError(
            'source="train" shows the batch just learned from, which is gone at an evaluation: set `every`.'
        )
    if formatter is not None and not callable(formatter):
        raise TypeError(f"formatter must be a function of (inputs, labels, predictions), not {formatter!r}.")
