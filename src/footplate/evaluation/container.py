"""Batches of one kind, kept until the end of an evaluation: joined, or as a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from footplate.batch import IGNORED_LABEL
from footplate.comm import map_nested
from footplate.evaluation.buffers import NestedBuffer
from footplate.evaluation.memory_limit import MemoryBudget
from footplate.evaluation.store import Store, stored_dtype

ALIGNMENT = 16  # bytes; the largest that any dtype needs


class EvalLoopContainer:
    """Collects nested tensors batch by batch and returns them as numpy arrays.

    Args:
        do_nested_concat: Join the batches to one structure; else return a list with one entry per batch.
        padding_index: The value that pads rows shorter than the longest.
    """

    def __init__(self, do_nested_concat: bool = True, padding_index: int = IGNORED_LABEL) -> None:
        self.do_nested_concat = do_nested_concat
        self.padding_index = padding_index
        self._buffer = NestedBuffer(padding_index=padding_index) if do_nested_concat else BatchList()

    def add(self, tensors: Any) -> None:
        """Copy one more batch to the host.

        Args:
            tensors: A tensor, or a nested list, tuple or mapping of them.
        """
        self._buffer.add(tensors)

    def to_cpu_and_numpy(self) -> None:
        """Do nothing: each batch is copied to the host when it is added."""

    def get_arrays(self) -> Any:
        """All batches as numpy arrays; None if nothing was added."""
        return self._buffer.arrays()


class BatchList:
    """Keeps a list of batches, which may have different structures.

    Args:
        budget: Decides what may stay in memory.
    """

    def __init__(self, budget: MemoryBudget | None = None) -> None:
        self._budget = budget or MemoryBudget()
        self._store: Store | None = None
        self._added: list[Any] = []  # since the last call of `arrays`, with slots for tensors
        self._finished: list[Any] = []

    def add(self, batch: Any) -> None:
        """Copy one more batch."""
        self._added.append(map_nested(self._store_leaf, batch))

    def _store_leaf(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        self._store = self._store or Store(self._budget, 0)
        start = self._store.used = -(-self._store.used // ALIGNMENT) * ALIGNMENT  # numpy views need it
        self._store.append(leaf.detach())
        return _Slot(start, self._store.used, stored_dtype(leaf.dtype), tuple(leaf.shape))

    def arrays(self) -> list[Any] | None:
        """The batches, with arrays in place of tensors; None if nothing was added."""
        if self._added:
            data = self._store.finish() if self._store else np.empty(0, np.uint8)
            self._finished += [map_nested(lambda leaf: _read(leaf, data), batch) for batch in self._added]
            self._store, self._added = None, []
        return self._finished or None


@dataclass(slots=True)
class _Slot:
    """Where a tensor lies in a store."""

    start: int
    end: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def _read(leaf: Any, data: np.ndarray) -> Any:
    if not isinstance(leaf, _Slot):
        return leaf
    return data[leaf.start : leaf.end].view(leaf.dtype).reshape(leaf.shape)
