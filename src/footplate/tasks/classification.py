"""Classify texts: one class, several at once, or a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from footplate import EvalPrediction, HfArg, PredictionOutput
from footplate.tasks import Batch, DataFlags, Recipe, Row, check_columns
from footplate.tasks.common.classes import decide, has_class_numbers, scores_of, tell_classes
from footplate.tasks.common.labels import USUAL_METRICS, Labels, find_bad_label, find_labels, number_labels
from footplate.tasks.common.predictions import save_numbered
from footplate.tasks.common.reading import SPLITS, rename_splits
from footplate.tasks.common.scores import measure
from footplate.tasks.common.texts import TextFlags, pad_texts


@dataclass
class ClassificationFlags(TextFlags):
    """Which columns hold texts and labels."""

    text_column_names: str | None = HfArg(default=None, help="Columns of text, such as title,body.")
    text_column_delimiter: str = HfArg(default=" ", help="What is put between them.")
    label_column_name: str | None = HfArg(default=None, help="Column of labels (default: label).")
    do_regression: bool | None = HfArg(default=None, help="Labels are values; default: if they are floats.")
    metric_name: str | None = HfArg(default=None, help="What to measure: accuracy, f1, mse, pearson, ...")
    shuffle_train_dataset: bool = HfArg(
        default=False, help="Shuffle the training rows once, before they are cut."
    )
    shuffle_seed: int = HfArg(default=42, help="Seed of that.")
    train_split_name: str | None = HfArg(default=None, help="Name of the training split on the Hub.")
    validation_split_name: str | None = HfArg(default=None, help="Name of the validation split on the Hub.")
    test_split_name: str | None = HfArg(default=None, help="Name of the test split on the Hub.")
    remove_splits: str | None = HfArg(default=None, help="Splits to leave out, such as test,extra.")
    remove_columns: str | None = HfArg(default=None, help="Columns to leave out.")


class Classification(Recipe):
    """Texts and their labels."""

    summary = "Classify texts: one class, several at once, or a value."
    example = (
        "--model_name_or_path MODEL --train_file train.csv --validation_file dev.csv "
        "--text_column_names text --do_train --do_eval --output_dir out"
    )
    data_flags: ClassVar[type[DataFlags]] = ClassificationFlags
    first_flags: ClassVar[tuple[str, ...]] = ("text_column_names", "label_column_name", "max_seq_length")
    head = "AutoModelForSequenceClassification"
    data: TextFlags

    texts: list[str]  # columns; two of them are the two parts of a pair
    label: str
    labels: Labels
    has_numbers = False  # labels are numbers of classes already

    def learn(self, rows: Mapping[str, Any]) -> None:
        """Find the columns and the classes."""
        self.find_columns(rows)
        check_columns(self, rows, self.texts, [self.label], "--text_column_names and --label_column_name")
        self.labels = find_labels(rows, self.label, getattr(self.data, "do_regression", None))
        self.has_numbers = has_class_numbers(rows, self.label)

    def read_file(self, path: str, split: str) -> Any:
        """The rows of a file; those to learn from in another order, if that is asked for."""
        rows, data = super().read_file(path, split), self.data
        shuffles = split == "train" and getattr(data, "shuffle_train_dataset", False)
        return rows.shuffle(seed=getattr(data, "shuffle_seed", None)) if shuffles else rows

    def read_hub(self) -> dict[str, Any]:
        """The splits under the names that flags give, without those that flags leave out."""
        given = {split: getattr(self.data, f"{split}_split_name", None) for split in SPLITS}
        found = rename_splits(super().read_hub(), given)
        left_out = (getattr(self.data, "remove_splits", None) or "").split(",")
        return {split: part for split, part in found.items() if split not in left_out}

    def find_columns(self, rows: Mapping[str, Any]) -> None:
        """Set `texts` and `label`."""
        data: Any = self.data
        self.label = data.label_column_name or "label"
        self.texts = (data.text_column_names or "sentence").split(",")

    def find_problem(self, row: Row) -> str | None:
        """A text that is missing, a label that training does not know."""
        if any(not isinstance(row[name], str) for name in self.texts):
            return f"the text in {' or '.join(map(repr, self.texts))} is missing"
        return find_bad_label(row[self.label], self.labels, self.has_numbers) if self.label in row else None

    def text_of(self, row: Row) -> list[str]:
        """The texts of a row."""
        return [str(row[name]) for name in self.texts]

    def configure(self) -> dict[str, Any]:
        """The classes."""
        return self.labels.config

    def columns_of(self, rows: Batch) -> list[list[str]]:
        """What the tokenizer gets: all columns of text joined to one."""
        delimiter = getattr(self.data, "text_column_delimiter", " ")
        return [[delimiter.join(parts) for parts in zip(*(rows[name] for name in self.texts), strict=True)]]

    def features(self, rows: Batch) -> Batch:
        """Tokens and labels."""
        made: Batch = dict(
            self.processor(
                *self.columns_of(rows),
                padding="max_length" if self.data.pad_to_max_length else False,
                max_length=min(self.data.max_seq_length, self.processor.model_max_length),
                truncation=True,
            )
        )
        labels = rows.get(self.label, [])
        if any(value is not None and value != -1 for value in labels):  # test sets may hide them
            made["label"] = number_labels(labels, self.labels, self.has_numbers)
        return made

    def collator(self) -> Any:
        """Pad to the longest row of a batch, where rows are not padded already."""
        return pad_texts(self.processor, self.data.pad_to_max_length, self.args)

    def metric_names(self) -> tuple[str, ...]:
        """What to measure."""
        given = getattr(self.data, "metric_name", None)
        return (given or USUAL_METRICS[self.labels.kind],)

    def metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """Accuracy, F1 of several labels at once, or the squared error of values."""
        decided = decide(self.labels, scores_of(prediction))
        return measure(self.metric_names(), decided, prediction.label_ids)

    def recall(self, learned: Mapping[str, Any]) -> None:
        """Columns and classes of an earlier run."""
        super().recall({**learned, "labels": Labels(*learned["labels"])})

    def row_of(self, line: str) -> Row:
        """The text, where one is enough."""
        return {self.texts[0]: line} if len(self.texts) == 1 else super().row_of(line)

    def answers(self, rows: Any, features: Any, output: PredictionOutput) -> list[Row]:
        """The class and its score, several classes, or the value."""
        return tell_classes(self.labels, scores_of(output))

    def save_predictions(self, rows: Any, features: Any, output: PredictionOutput, folder: Path) -> None:
        """One line for each row: its number and the answer."""
        save_numbered(self.answers(rows, features, output), folder / self.predictions_name())

    def predictions_name(self) -> str:
        """The file of predictions."""
        return "predict_results.txt"
