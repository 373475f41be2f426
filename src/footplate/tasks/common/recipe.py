"""`Recipe`: what makes one task differ from another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from footplate import EvalPrediction, PredictionOutput, Trainer, TrainingArguments
from footplate.tasks.common.flags import DataFlags, ModelFlags
from footplate.tasks.common.problems import TaskError
from footplate.tasks.common.reading import files_of, limit_rows, read_hub, read_table, split_off

Row = dict[str, Any]
Batch = dict[str, list[Any]]


class Recipe:
    """What the rows of a task mean, what they become, and how answers are measured and shown.

    A task is a subclass. Its methods are called in the order in which they stand here; the defaults suit a
    model that takes text.

    Args:
        data: Flags of the data.
        start: Flags of the model to start from.
        args: Flags of training.
    """

    summary: ClassVar[str] = ""  # one line for `footplate tasks`
    example: ClassVar[str] = ""  # flags to copy
    data_flags: ClassVar[type[DataFlags]] = DataFlags
    model_flags: ClassVar[type[ModelFlags]] = ModelFlags
    arguments: ClassVar[type[TrainingArguments]] = TrainingArguments
    trainer: ClassVar[type[Trainer]] = Trainer
    head: ClassVar[str] = "AutoModel"  # class of transformers that makes the model
    reader: ClassVar[str] = "AutoTokenizer"  # class of transformers that reads inputs
    first_flags: ClassVar[tuple[str, ...]] = ()  # those of the task that `--help` shows
    old_flags: ClassVar[Mapping[str, str | None]] = {}  # of earlier scripts, beside those of all tasks
    gives_words: ClassVar[bool] = False  # texts come as lists of words
    limits_rows: ClassVar[bool] = True  # `max_train_samples` and its kin count rows,
    limits_features: ClassVar[bool] = False  # or what is made of them
    splits_by_chance: ClassVar[bool] = True  # how rows to evaluate on are taken from the training set
    always_splits: ClassVar[bool] = False  # take them away even if nothing is evaluated
    split_flag: ClassVar[str] = "validation_split_percentage"  # the flag that says how many
    ordered_stages: ClassVar[tuple[str, ...]] = ()  # stages that depend on which rows come together
    rows_at_once: ClassVar[int] = 1000  # that a stage gets; fewer where a row is large

    processor: Any = None  # tokenizer, image processor or feature extractor
    config: Any = None  # that of the model

    def __init__(self, data: DataFlags, start: ModelFlags, args: TrainingArguments) -> None:
        self.data, self.start, self.args = data, start, args

    def run(self) -> dict[str, float]:
        """The whole work of a task that trains nothing: it replaces all that is below."""
        raise NotImplementedError

    # ---- rows ----

    def files(self) -> dict[str, str]:
        """The files or folders to read, by split."""
        return files_of(self.data)

    def read_file(self, path: str, split: str) -> Any:
        """The rows of a file. Override for a form of your own."""
        return read_table(path, split, self.data, self.start)

    def read_hub(self) -> dict[str, Any]:
        """All splits of a dataset of the Hub. Override where they have other names."""
        return read_hub(self.data, self.start)

    def split_off(self, rows: Any) -> tuple[Any, Any]:
        """The rows to learn from, and those to evaluate on, where only the former are given."""
        seed = self.args.seed if self.splits_by_chance else None
        return split_off(rows, self.data.validation_split_percentage, seed)

    def limit(self, rows: Any, count: int | None) -> Any:
        """So many rows at most: the first ones."""
        return limit_rows(rows, count)

    def more_splits(self) -> Sequence[str]:
        """Splits to keep beside train, validation and test."""
        return ()

    def learn(self, rows: Mapping[str, Any]) -> None:
        """Find out what must be known of the rows of all splits before a model is made: columns, classes."""

    def find_problem(self, row: Row) -> str | None:
        """Why a row cannot be used, with the remedy; None if it can."""
        return None

    def text_of(self, row: Row) -> list[str]:
        """The texts of a row, for a tokenizer that is trained on the spot."""
        return [value for value in row.values() if isinstance(value, str)]

    # ---- model ----

    def configure(self) -> dict[str, Any]:
        """Options of the model's configuration that follow from the data, such as `num_labels`."""
        return {}

    def build_processor(self, texts: Iterable[str]) -> Any:
        """A processor that is made of several parts or of the data; None to load the one of the model.

        Args:
            texts: Those of the training set.
        """
        return None

    def processor_options(self) -> dict[str, Any]:
        """Further arguments of the tokenizer or processor."""
        return {}

    def model_options(self) -> dict[str, Any]:
        """Further arguments of a pretrained model, such as how it is quantised."""
        return {}

    def adjust(self, model: Any) -> Any:
        """The model, changed for the task once it is loaded."""
        return model

    # ---- features ----

    def stages(self, split: str) -> Sequence[Callable[[Batch], Batch]]:
        """The functions that make features of the rows of a split, one after the other."""
        return [self.features]

    def features(self, rows: Batch) -> Batch:
        """What the model takes, of some rows given as columns."""
        raise NotImplementedError(f"{type(self).__name__} must define features(rows)")

    def transform(self, split: str) -> Callable[[Batch], Batch] | None:
        """What is done with rows each time they are read, after the stages; None for nothing."""
        return None

    def collator(self) -> Any:
        """The data collator; None for the Trainer's own choice."""
        return None

    # ---- training and measuring ----

    def trainer_options(self, rows: Mapping[str, Any], features: Mapping[str, Any]) -> dict[str, Any]:
        """Further arguments of the trainer.

        Args:
            rows: The rows of all splits.
            features: What they became.
        """
        return {}

    def metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """What is measured at an evaluation, beside the loss."""
        return {}

    def evaluation_sets(self, rows: Mapping[str, Any]) -> dict[str, str]:
        """The splits to evaluate on, and what is added to the names of their metrics."""
        return {"validation": ""}

    def evaluation_prefix(self, rows: Mapping[str, Any]) -> str:
        """What the names of metrics and of their file begin with, in the evaluation after training."""
        return "eval"

    def evaluation_inputs(
        self, split: str, rows: Mapping[str, Any], features: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The data that `evaluate` gets."""
        return {"eval_dataset": features[split]}

    def prediction_inputs(
        self, split: str, rows: Mapping[str, Any], features: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The data that `predict` gets."""
        return {"test_dataset": features[split]}

    def evaluation_options(self) -> dict[str, Any]:
        """Further arguments of `evaluate` and `predict`."""
        return {}

    def finish_metrics(self, metrics: dict[str, float]) -> dict[str, float]:
        """The metrics of an evaluation, with those that follow from others."""
        return metrics

    def show(self, inputs: Any, labels: Any, predictions: Any) -> Row:
        """A row as people read it, for the samples; the default suits the heads of transformers."""
        raise NotImplementedError

    # ---- answers ----

    def recall(self, learned: Mapping[str, Any]) -> None:
        """Take over what an earlier run has learned from its data, as plain values."""
        vars(self).update(learned)

    def row_of(self, line: str) -> Row:
        """A row for a text that was typed; an error if a row is more than one text."""
        raise TaskError('A row of this task is more than one text: type it as JSON, {"column": value, ...}.')

    def reply(self, model: Any, rows: Any) -> list[Row]:
        """Answers of a model that writes, in place of those below: nothing is prepared or predicted."""
        raise NotImplementedError

    def answers(self, rows: Any, features: Any, output: PredictionOutput) -> list[Row]:
        """What a prediction says about each row, in the task's own terms."""
        raise TaskError("`footplate predict` has no answers for this task: its recipe does not define any.")

    def save_predictions(self, rows: Any, features: Any, output: PredictionOutput, folder: Path) -> None:
        """Write predictions as the script of the original does."""

    def has_own(self, name: str) -> bool:
        """Whether the task overrides a method."""
        return getattr(type(self), name) is not getattr(Recipe, name)
