"""The rows that were evaluated, for metrics that look at more of them than the model did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np


class RowColumns(Mapping[str, Any]):
    """The columns of a dataset, each read when it is asked for, in the order in which rows were evaluated.

    Args:
        dataset: The dataset as the user gave it, with every column.
        indices: Its rows in the order of the predictions.
    """

    def __init__(self, dataset: Any, indices: np.ndarray) -> None:
        self._dataset = dataset
        self._indices = indices

    def __getitem__(self, name: str) -> Any:
        if name not in self._names():
            raise KeyError(f"{name!r} is not a column of the evaluated rows, which have {self._names()}.")
        if hasattr(self._dataset, "column_names"):
            column = self._dataset[name]
            values = [column[int(index)] for index in self._indices] if len(self._indices) else []
        else:
            values = [self._dataset[int(index)][name] for index in self._indices]
        is_plain = all(isinstance(value, (int, float, bool, np.number)) for value in values)
        return np.asarray(values) if is_plain else values

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def _names(self) -> list[str]:
        names = getattr(self._dataset, "column_names", None)
        if names is not None:
            return list(names)
        first = self._dataset[int(self._indices[0])] if len(self._indices) else None
        return list(first) if isinstance(first, Mapping) else []
