"""What the labels of a classification are: one class, several at once, or a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from footplate.tasks.common.models import import_transformers, load
from footplate.tasks.common.problems import TaskError

if TYPE_CHECKING:
    from footplate.tasks.common.flags import ModelFlags

VALUE, ONE, SEVERAL = "regression", "single_label_classification", "multi_label_classification"
USUAL_METRICS = {VALUE: "mse", ONE: "accuracy", SEVERAL: "f1"}


class Labels(NamedTuple):
    """The kind of a label, and the names of the classes in the order of their numbers."""

    kind: str
    names: list[str]

    @property
    def config(self) -> dict[str, Any]:
        """What a model's configuration must say."""
        if self.kind == VALUE:
            return {"num_labels": 1, "problem_type": VALUE}
        return name_classes(self.names) | ({"problem_type": SEVERAL} if self.kind == SEVERAL else {})


def name_classes(names: list[str]) -> dict[str, Any]:
    """What a model's configuration says about classes."""
    return {
        "num_labels": len(names),
        "id2label": dict(enumerate(names)),
        "label2id": {name: number for number, name in enumerate(names)},
    }


def find_labels(rows: Mapping[str, Any], column: str, is_value: bool | None = None) -> Labels:
    """The classes of a column, from the training rows if there are any.

    Args:
        rows: The rows of all splits.
        column: The column of labels.
        is_value: Whether the labels are values of a regression; None decides by their type.
    """
    first = rows["train"] if "train" in rows else next(iter(rows.values()))
    feature = (first.features or {}).get(column)
    if is_value is None:
        is_value = getattr(feature, "dtype", None) in ("float32", "float64")
    if is_value:
        return Labels(VALUE, [])
    names = getattr(feature, "names", None)
    if names:
        return Labels(ONE, list(names))
    values = first[column] if hasattr(first, "__len__") else [row[column] for row in first]
    if any(isinstance(value, (list, tuple)) for value in values):
        return Labels(SEVERAL, sorted({str(name) for value in values for name in value or ()}))
    return Labels(ONE, sort_names({value for value in values if value is not None and value != -1}))


def names_in_model(flags: ModelFlags) -> list[str] | None:
    """The classes that a pretrained model was trained for, in the order of their numbers."""
    if flags.model_name_or_path is None:
        return None
    name = flags.config_name or flags.model_name_or_path
    names = load(import_transformers().AutoConfig, name, flags).id2label or {}
    if all(text == f"LABEL_{number}" for number, text in names.items()):  # nobody named them
        return None
    return [str(names[number]) for number in sorted(names)]


def sort_names(values: set[Any]) -> list[str]:
    """Classes in order: numbers by size, texts by the alphabet."""
    if not values:
        raise TaskError("The column of labels is empty in all rows. Name another with --label_column_name.")
    are_numbers = all(isinstance(value, (int, float)) for value in values)
    return [str(value) for value in (sorted(values) if are_numbers else sorted(map(str, values)))]


def number_labels(values: list[Any], labels: Labels, are_numbers: bool) -> list[Any]:
    """The labels of some rows as a model takes them: -1 and None mean that there is none.

    Args:
        values: As the column has them.
        labels: What they may be.
        are_numbers: They are numbers of classes already.
    """
    if labels.kind == VALUE:
        return [float(value) for value in values]
    places = {name: number for number, name in enumerate(labels.names)}
    if labels.kind == SEVERAL:
        found = [{places[str(name)] for name in value} for value in values]
        return [[float(number in row) for number in range(len(places))] for row in found]
    if are_numbers:
        return list(values)
    return [-1 if value is None or value == -1 else places[str(value)] for value in values]


def find_bad_label(value: Any, labels: Labels, are_numbers: bool) -> str | None:
    """Why a label cannot be used."""
    if labels.kind == VALUE:
        return None if isinstance(value, (int, float)) else f"the label {value!r} is not a number"
    if are_numbers or value is None or value == -1:
        return "the label is missing" if value is None else None
    for name in value if isinstance(value, (list, tuple)) else [value]:
        if str(name) not in labels.names:
            known = ", ".join(labels.names[:10]) + (", ..." if len(labels.names) > 10 else "")
            return f"the label {name!r} does not occur in the training rows (they have {known})"
    return None
