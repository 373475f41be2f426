"""Classes as answers: learned from rows, decided by scores, told in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from footplate import EvalPrediction, PredictionOutput
from footplate.tasks.common.labels import (
    ONE,
    SEVERAL,
    VALUE,
    Labels,
    find_bad_label,
    find_labels,
    names_in_model,
    number_labels,
)
from footplate.tasks.common.recipe import Batch, Recipe, Row
from footplate.tasks.common.running import check_columns
from footplate.tasks.common.scores import measure

if TYPE_CHECKING:
    from footplate.tasks.common.flags import ModelFlags


class ClassRecipe(Recipe):
    """Things that are no text, each of one class; another base says how these things are read."""

    things: ClassVar[str]  # what they are called
    data: Any

    labels: Labels
    has_numbers = False  # labels are numbers of classes already

    @property
    def label(self) -> str:
        """The column of classes."""
        return str(self.data.label_column_name)

    def learn(self, rows: Mapping[str, Any]) -> None:
        """Find the classes."""
        super().learn(rows)
        flag = f"--label_column_name, or put the {self.things} of each class in a folder of its name"
        check_columns(self, rows, [], [self.label], flag)
        self.labels, self.has_numbers = learn_classes(rows, self.label, self.start)

    def recall(self, learned: Mapping[str, Any]) -> None:
        """The classes of an earlier run, and what else it learned."""
        super().recall({**learned, "labels": Labels(*learned["labels"])})

    def find_problem(self, row: Row) -> str | None:
        """What cannot be read, or a class that training does not know."""
        problem = super().find_problem(row)
        if problem is None and self.label in row:
            return find_bad_label(row[self.label], self.labels, self.has_numbers)
        return problem

    def numbers_of(self, rows: Batch) -> Batch:
        """The labels of some rows as a model takes them, if they are known."""
        if self.label not in rows:
            return {}
        return {"labels": number_labels(rows[self.label], self.labels, self.has_numbers)}

    def metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """The share of rows whose class is right."""
        return measure(("accuracy",), scores_of(prediction).argmax(axis=1), prediction.label_ids)

    def answers(self, rows: Any, features: Any, output: PredictionOutput) -> list[Row]:
        """The class and its score."""
        return tell_classes(self.labels, scores_of(output))


def learn_classes(rows: Mapping[str, Any], column: str, flags: ModelFlags) -> tuple[Labels, bool]:
    """The classes, and whether rows have their numbers; without training rows, those of the model.

    Args:
        rows: The rows of all splits.
        column: The column of classes.
        flags: Name the model.
    """
    has_numbers = has_class_numbers(rows, column)
    names = None if "train" in rows or has_numbers else names_in_model(flags)
    return (Labels(ONE, names) if names else find_labels(rows, column, is_value=False)), has_numbers


def has_class_numbers(rows: Mapping[str, Any], column: str) -> bool:
    """Whether a column holds the numbers of classes, whose names `datasets` knows."""
    features = next(iter(rows.values())).features or {}
    return bool(getattr(features.get(column), "names", None))


def scores_of(output: Any) -> Any:
    """The scores of classes: a model may give more than these."""
    return output.predictions[0] if isinstance(output.predictions, tuple) else output.predictions


def decide(labels: Labels, scores: Any) -> Any:
    """The class, the flags or the value of each row."""
    if labels.kind == VALUE:
        return np.squeeze(scores, axis=-1)
    return (scores > 0).astype(int) if labels.kind == SEVERAL else scores.argmax(axis=1)


def tell_classes(labels: Labels, scores: Any) -> list[Row]:
    """Each row in words: the best class and its share, all classes that are true, or the value."""
    decided = decide(labels, scores)
    if labels.kind == VALUE:
        return [{"value": round(float(value), 4)} for value in decided]
    if labels.kind == SEVERAL:
        flags = [zip(labels.names, row, strict=True) for row in decided]
        return [{"labels": [name for name, is_true in row if is_true]} for row in flags]
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares = weights.max(axis=1) / weights.sum(axis=1)
    return [
        {"label": labels.names[int(number)], "score": round(float(share), 4)}
        for number, share in zip(decided, shares, strict=True)
    ]
