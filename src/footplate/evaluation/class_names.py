"""What the classes of a task are called: by the model's config, or by a column of the dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def find_class_names(config: Any, dataset: Any, label_names: Sequence[str]) -> list[str] | None:
    """The names of the classes in their order; None if nobody has given them.

    Args:
        config: The model's config, or None.
        dataset: What was evaluated; its columns may know the names of their classes.
        label_names: The columns that are labels, first.
    """
    return _names_of_config(config) or _names_of_columns(dataset, label_names)


def _names_of_config(config: Any) -> list[str] | None:
    given = getattr(config, "id2label", None)
    if not isinstance(given, Mapping) or not given:
        return None
    by_number = {str(number): str(name) for number, name in given.items()}
    names = [by_number.get(str(number)) for number in range(len(by_number))]
    # what transformers fills in where nobody gave any
    are_made_up = all(name == f"LABEL_{number}" for number, name in enumerate(names))
    return None if are_made_up or None in names else [str(name) for name in names]


def _names_of_columns(dataset: Any, label_names: Sequence[str]) -> list[str] | None:
    features = getattr(dataset, "features", None)
    if not isinstance(features, Mapping):
        return None
    usual = [name for name in features if "label" in name or name.endswith("tags")]
    for name in [*label_names, *usual]:
        feature = features.get(name)
        inner = getattr(feature, "feature", feature)  # of a sequence of classes
        names = getattr(inner, "names", None)
        if isinstance(names, list) and names:
            return [str(name) for name in names]
    return None
