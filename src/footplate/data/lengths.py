"""How long each sample is, from a column or from Arrow's offsets where no sample need be opened."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset, Subset

logger = logging.getLogger(__name__)

Lengths = np.ndarray[Any, np.dtype[np.int64]]

FIRST_PROGRESS_SECONDS = 3.0
NEXT_PROGRESS_SECONDS = 15.0

_WITHOUT_LENGTHS = "or choose train_sampling_strategy='random' and leave per_device_train_tokens unset."


def find_lengths(
    dataset: Any, column: str | None = "length", model_input_name: str | None = None, may_read: bool = True
) -> Lengths:
    """The length of every sample, by the cheapest way that the dataset allows.

    Args:
        dataset: A map-style dataset with a length.
        column: Where lengths are stored already, if they are (`length_column_name`).
        model_input_name: Whose length is meant where they are not; `input_ids` unless said otherwise.
        may_read: Read every row where nothing else can tell; else that is an error.
    """
    name = model_input_name or "input_ids"
    if isinstance(dataset, Subset):
        return find_lengths(dataset.dataset, column, name, may_read)[
            np.asarray(dataset.indices, dtype=np.int64)
        ]
    if isinstance(dataset, ConcatDataset):
        return np.concatenate([find_lengths(part, column, name, may_read) for part in dataset.datasets])
    lengths = _lengths_in_table(dataset, column, name) if _is_arrow_dataset(dataset) else None
    if lengths is None and not may_read:
        raise ValueError("Only the rows themselves can tell how long they are.")
    return _lengths_by_reading(dataset, column, name) if lengths is None else lengths


def _is_arrow_dataset(dataset: Any) -> bool:
    """Whether this is a `datasets.Dataset`, asked without importing that package."""
    package = sys.modules.get("datasets")
    return package is not None and isinstance(dataset, package.Dataset)


def _lengths_in_table(dataset: Any, column: str | None, name: str) -> Lengths | None:
    """Lengths from the Arrow table, no row decoded; None if only the items themselves can tell."""
    import pyarrow as arrow  # type: ignore[import-untyped]  # always there with a datasets.Dataset
    import pyarrow.compute as compute  # type: ignore[import-untyped]

    if column is not None and column in dataset.column_names:
        lengths = dataset.data.column(column)
    elif dataset.format["type"] == "custom":  # a transform on access may make items unlike the rows
        return None
    elif name not in dataset.column_names:
        raise _no_length_error(column, name, dataset.column_names)
    else:
        cells, kind = dataset.data.column(name), arrow.types
        if kind.is_list(cells.type) or kind.is_large_list(cells.type) or kind.is_fixed_size_list(cells.type):
            lengths = compute.list_value_length(cells)
        elif kind.is_string(cells.type) or kind.is_large_string(cells.type):
            lengths = compute.utf8_length(cells)
        else:
            return None

    # The offsets of the whole table are cheap; gathering the selected rows first would copy their tokens.
    return _select(dataset, compute.fill_null(lengths, 0).to_numpy()).astype(np.int64)


def read_column(dataset: Any, column: str) -> np.ndarray[Any, Any] | None:
    """A column of numbers straight from Arrow, or None if the dataset has no such column there."""
    if not _is_arrow_dataset(dataset) or column not in dataset.column_names:
        return None
    return np.array(_select(dataset, dataset.data.column(column).to_numpy()))  # Arrow's memory is read-only


def _select(dataset: Any, in_table: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The rows of the table that `select` or `shuffle` left, in their order."""
    selection = dataset._indices
    return in_table if selection is None else in_table[selection.column(0).to_numpy()]


def _lengths_by_reading(dataset: Any, column: str | None, name: str) -> Lengths:
    """Lengths from one pass over the items, with a line now and then if it takes long."""
    total = len(dataset)
    lengths = np.empty(total, dtype=np.int64)
    start = time.monotonic()
    next_report = start + FIRST_PROGRESS_SECONDS
    for index in range(total):
        lengths[index] = _length_of(dataset[index], column, name)
        if time.monotonic() >= next_report:
            next_report = time.monotonic() + NEXT_PROGRESS_SECONDS
            logger.info(
                "Measuring samples for length grouping: %d of %d after %.0f s. A column %r would save this.",
                index + 1,
                total,
                time.monotonic() - start,
                column or "length",
            )
    return lengths


def _length_of(item: Any, column: str | None, name: str) -> int:
    """The length that one item states, or that its model input has."""
    if not isinstance(item, Mapping):
        raise ValueError(
            f"Length grouping needs samples that are dictionaries; this dataset gives {type(item).__name__}. "
            f"Pass lengths=... to the sampler, {_WITHOUT_LENGTHS}"
        )
    if column is not None and column in item:
        return int(item[column])
    if name not in item:
        raise _no_length_error(column, name, list(item))
    return len(item[name])


def _no_length_error(column: str | None, name: str, found: list[str]) -> ValueError:
    """Says which keys were looked for, which there are, and what to set."""
    return ValueError(
        f"Length grouping found neither a length column {column!r} nor the model input {name!r} among "
        f"{sorted(found)}. Set length_column_name to a column of lengths, {_WITHOUT_LENGTHS}"
    )
