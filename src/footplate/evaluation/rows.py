"""The evaluated rows with all their columns, for metrics that need more than the model's inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np


class RowColumns(Mapping[str, Any]):
    """The columns of a dataset in the order in which rows were evaluated; each is read on access.

    Args:
        dataset: The dataset as the user gave it, with every column.
        indices: The rows of the dataset, in the order of the predictions.
    """

    def __init__(self, dataset: Any, indices: np.ndarray) -> None:
        self._dataset = dataset
        self._indices = indices

    def __getitem__(self, name: str) -> Any:
        if name not in self._names():
            raise KeyError(f"{name!r} is not a column of the evaluated rows, which have {self._names()}.")
        if hasattr(self._dataset, "select") and name in getattr(self._dataset, "column_names", ()):
            # one read of the stored column: row by row, a million rows would take minutes
            values = list(self._dataset.with_format(None).select(self._indices)[name][:])
        else:
            values = [_plain(self._dataset[int(index)][name]) for index in self._indices]
        is_numeric = all(isinstance(value, (int, float, bool, np.number)) for value in values)
        return np.asarray(values) if is_numeric else values

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def _names(self) -> list[str]:
        stored = getattr(self._dataset, "column_names", None)
        has_transform = getattr(self._dataset, "format", {}).get("type") == "custom"  # may return other names
        if stored is not None and not has_transform:
            return list(stored)
        first = self._dataset[int(self._indices[0])] if len(self._indices) else None
        returned = first if isinstance(first, Mapping) else ()
        return list(dict.fromkeys([*(stored or ()), *returned]))


def _plain(value: Any) -> Any:
    """A tensor or array of one number as that number."""
    return value.item() if getattr(value, "ndim", None) == 0 else value
