"""Rows that can be read, measured and copied without code of the user's."""

from __future__ import annotations

import copy
import sys
from collections import UserDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset

NUM_LOOKED_AT = 100  # rows of a list, for code that they may run

_CONSTANT = (bool, int, float, complex, str, bytes, range)
_CONSTANT_IN = ("datetime", "decimal", "pathlib", "uuid")


class NotPlain(Exception):
    """A row holds something that can be copied only by code of its own."""


def runs_no_code(dataset: Any) -> bool:
    """Whether rows can be read without code of the user's: of tables and lists, and of parts of them.

    A subclass of any of these may do anything when it is asked for a row, and so may a row.
    """
    if type(dataset) is Subset:
        return runs_no_code(dataset.dataset)
    if type(dataset) is ConcatDataset:
        return all(map(runs_no_code, dataset.datasets))
    if type(dataset) in (list, tuple):
        return all(_is_known(value) for row in dataset[:NUM_LOOKED_AT] for value in _values_of(row))
    package = sys.modules.get("datasets")
    return package is not None and type(dataset) is package.Dataset and is_table(dataset)


def holds_lists(dataset: Any) -> bool:
    """Whether some rows are the same objects each time that they are read; a table makes them anew."""
    return any(isinstance(part, (list, tuple)) for part in parts_of(dataset))


def copy_rows(value: Any) -> Any:
    """Rows of a list with copies of what a collator may change; raises NotPlain where that runs code."""
    kind = type(value)
    if kind is dict:
        return {name: copy_rows(entry) for name, entry in value.items()}
    if kind in (list, tuple, set, frozenset):
        return kind(map(copy_rows, value))
    if kind is torch.Tensor and value.layout == torch.strided and not value.requires_grad:
        return value.clone()  # a deep copy would take all of the tensor that this one is a part of
    if kind is np.ndarray and not value.dtype.hasobject:
        return value.copy()
    root = kind.__module__.partition(".")[0]
    if isinstance(value, UserDict) and root == "transformers":  # what a tokenizer returns
        copied = copy.copy(value)
        copied.data = copy_rows(value.data)
        return copied
    if value is None or isinstance(value, np.generic) or kind in _CONSTANT or root in _CONSTANT_IN:
        return value
    if root == "PIL":
        return value.copy()
    raise NotPlain(f"a row holds a {kind.__name__}")


def parts_of(dataset: Any) -> list[Any]:
    """The datasets that hold the rows of one that is put together of others."""
    if isinstance(dataset, Subset):
        return parts_of(dataset.dataset)
    if isinstance(dataset, ConcatDataset):
        return [part for whole in dataset.datasets for part in parts_of(whole)]
    return [dataset]


def is_table(dataset: Any) -> bool:
    """Whether a dataset is an Arrow table without a transform on access."""
    kind = (getattr(dataset, "format", None) or {}).get("type") if hasattr(dataset, "data") else "custom"
    return kind != "custom" and hasattr(dataset, "column_names")


def _values_of(row: Any) -> Sequence[Any]:
    """A row, and its entries if it has names for them."""
    return (row, *row.values()) if type(row) is dict else (row,)


def _is_known(value: Any) -> bool:
    """Whether a row, or an entry of one, is measured without code of the user's."""
    measured = (Mapping, torch.Tensor, np.ndarray, list, tuple, str, bytes)
    root = type(value).__module__.partition(".")[0]
    return not isinstance(value, measured) or root in ("builtins", "torch", "numpy", "transformers")
