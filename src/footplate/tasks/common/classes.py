"""Classes of things that are no text: learned from rows, and given as answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from footplate.tasks.common.labels import ONE, Labels, find_labels, names_in_model

if TYPE_CHECKING:
    from footplate.tasks.common.flags import ModelFlags
    from footplate.tasks.common.recipe import Row


def learn_classes(rows: Mapping[str, Any], column: str, flags: ModelFlags) -> tuple[Labels, bool]:
    """The classes, and whether rows have their numbers; without training rows, those of the model.

    Args:
        rows: The rows of all splits.
        column: The column of classes.
        flags: Name the model.
    """
    features = next(iter(rows.values())).features or {}
    has_numbers = bool(getattr(features.get(column), "names", None))
    names = None if "train" in rows or has_numbers else names_in_model(flags)
    return (Labels(ONE, names) if names else find_labels(rows, column, is_value=False)), has_numbers


def classes_and_scores(labels: Labels, logits: Any) -> list[Row]:
    """The best class of each row, and its share."""
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares = weights / weights.sum(axis=1, keepdims=True)
    return [{"label": labels.names[int(row.argmax())], "score": round(float(row.max()), 4)} for row in shares]
