"""Nested batches, copied one by one to where they stay and given back as numpy arrays."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from footplate.comm import find_batch_size, rebuild
from footplate.evaluation.memory_limit import MemoryBudget
from footplate.evaluation.store import Store, stored_dtype, to_host

logger = logging.getLogger(__name__)

BLOCK_BYTES = 1 << 20  # how much is moved at once when rows are spread out: little enough for the cache
APART = "Set eval_do_concat_batches=False to keep the batches apart."


def nested_bytes(tensors: Any) -> int:
    """Bytes that the tensors and arrays of a structure take once they are kept."""
    return sum(
        leaf.numel() * stored_dtype(leaf.dtype).itemsize if isinstance(leaf, torch.Tensor) else leaf.nbytes
        for leaf in _leaves(tensors)
        if isinstance(leaf, (torch.Tensor, np.ndarray))
    )


@dataclass(slots=True)
class _Terms:
    """What all parts of one buffer go by."""

    budget: MemoryBudget
    padding_index: int
    num_batches: float  # as big as the first


class NestedBuffer:
    """Joins batches of one structure below one another; rows shorter than the longest are padded at the end.

    Each batch leaves its device as it comes. Nothing is joined twice, so the cost is linear in the batches.

    Args:
        num_rows: Rows that will come, where that is known: memory is then taken once.
        padding_index: What fills up the rows.
        budget: What may stay in memory.
        name: What messages call the content.
    """

    def __init__(
        self,
        num_rows: int | None = None,
        padding_index: int = -100,
        budget: MemoryBudget | None = None,
        name: str = "batch",
    ) -> None:
        self._num_rows = num_rows
        self._padding_index = padding_index
        self._budget = budget or MemoryBudget()
        self._name = name
        self._root: _Part | None = None

    def add(self, batch: Any) -> None:
        """Copy one more batch.

        Args:
            batch: A tensor or array, a list of objects with one per row, or a nested structure of them.
        """
        if self._root is None:
            rows = find_batch_size(batch)
            num_batches = max(1.0, self._num_rows / rows) if self._num_rows and rows else 1.0
            self._root = _open(batch, self._name, _Terms(self._budget, self._padding_index, num_batches))
        self._root.add(batch)

    def arrays(self) -> Any:
        """All batches as one structure of numpy arrays; None when nothing was added."""
        return None if self._root is None else self._root.arrays()


class _Part(Protocol):
    """One node of the structure: a branch, or what a leaf becomes."""

    def add(self, value: Any) -> None: ...
    def arrays(self) -> Any: ...


def _open(value: Any, path: str, terms: _Terms) -> _Part:
    """The part that takes in `value` and its like from later batches."""
    if value is None:
        return _Nothing(path)
    if _is_numeric(value):
        return _Array(path, terms)
    if _is_rows(value):
        return _Rows(path)
    if isinstance(value, Mapping):
        parts = {key: _open(item, f"{path}[{key!r}]", terms) for key, item in value.items()}
        return _Branch(path, rebuild(value, dict.fromkeys(value, np.empty(0))), parts)
    if isinstance(value, (list, tuple)):
        parts = {i: _open(item, f"{path}[{i}]", terms) for i, item in enumerate(value)}
        return _Branch(path, rebuild(value, [None] * len(value)), parts)
    logger.warning("%s is a %s, which cannot be joined: None stands for it.", path, type(value).__name__)
    return _Nothing(path, is_left_out=True)


def _is_numeric(value: Any) -> bool:
    """Whether an array can be made of it."""
    if isinstance(value, (torch.Tensor, bool, int, float, np.number, np.bool_)):
        return True
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biufc"
    is_plain = type(value) in (list, tuple) and len(value) > 0
    return is_plain and all(isinstance(item, (bool, int, float)) for item in value)


def _is_rows(value: Any) -> bool:
    """Whether it is Python objects, one per row: a list without any tensor, or an array of no numbers."""
    if isinstance(value, np.ndarray):
        return True
    leaves = [leaf for leaf in _leaves(value) if leaf is not None] if type(value) in (list, tuple) else []
    return bool(leaves) and not any(isinstance(leaf, (torch.Tensor, np.ndarray)) for leaf in leaves)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (Mapping, list, tuple)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _leaves(item)
    else:
        yield value


class _Branch:
    """A mapping, list or tuple of parts."""

    def __init__(self, path: str, like: Any, parts: dict[Any, _Part]) -> None:
        self._path = path
        self._like = like  # holds no tensors: the first batch's would stay alive
        self._parts = parts

    def add(self, value: Any) -> None:
        if type(value) is not type(self._like):
            raise _mismatch(self._path, type(self._like).__name__, type(value).__name__)
        if len(value) != len(self._parts) or (
            isinstance(value, Mapping) and value.keys() != self._parts.keys()
        ):
            now = list(value) if isinstance(value, Mapping) else list(range(len(value)))
            raise ValueError(f"{self._path} had the parts {list(self._parts)} and now has {now}. {APART}")
        for key, part in self._parts.items():
            part.add(value[key])

    def arrays(self) -> Any:
        items = {key: part.arrays() for key, part in self._parts.items()}
        return rebuild(self._like, items if isinstance(self._like, Mapping) else list(items.values()))


class _Nothing:
    """What is None in every batch, or is left out because it cannot be joined."""

    def __init__(self, path: str, is_left_out: bool = False) -> None:
        self._path = path
        self._is_left_out = is_left_out

    def add(self, value: Any) -> None:
        if value is not None and not self._is_left_out:
            raise _mismatch(self._path, "None", type(value).__name__)

    def arrays(self) -> None:
        return None


class _Rows:
    """Python objects, one per row."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._rows: list[Any] = []

    def add(self, value: Any) -> None:
        if not isinstance(value, (list, tuple, np.ndarray)):
            raise _mismatch(self._path, "list", type(value).__name__)
        self._rows.extend(value)

    def arrays(self) -> np.ndarray:
        result = np.empty(len(self._rows), object)
        result[:] = self._rows
        return result


class _Array:
    """Tensors below one another: kept dense while they come, spread to the widest shape at the end."""

    def __init__(self, path: str, terms: _Terms) -> None:
        self._path = path
        self._terms = terms
        self._num_batches = terms.num_batches
        self._clear()

    def _clear(self) -> None:
        self._store: Store | None = None
        self._result: np.ndarray | None = None
        self._dtype: torch.dtype | None = None
        self._tail: tuple[int, ...] = ()  # the shape of a row
        self._run = 0  # rows since that shape last changed
        self._runs: list[tuple[int, tuple[int, ...]]] = []  # those before
        self._is_scalar = False

    def add(self, value: Any) -> None:
        tensor = self._as_tensor(value)
        if self._result is not None:  # it was given out: leave it as it is
            self._start_again(self._dtype)
        shape = tensor.shape
        tail = shape[1:]
        if tensor.dtype != self._dtype:
            tensor = self._change_dtype(tensor, tail)
        if tail != self._tail:
            self._change_shape(tail)
        assert self._store is not None
        self._store.append(tensor)
        self._run += shape[0] if shape else 1
        self._is_scalar = not shape

    def _as_tensor(self, value: Any) -> torch.Tensor:
        if isinstance(value, torch.Tensor):
            return value.detach() if value.requires_grad else value
        if not _is_numeric(value):
            raise _mismatch(self._path, "tensor", type(value).__name__)
        return torch.tensor(np.asarray(value))

    def _change_dtype(self, tensor: torch.Tensor, tail: tuple[int, ...]) -> torch.Tensor:
        """Take up a new dtype; returns the tensor in the one that the original would give it."""
        if self._dtype is None:
            self._dtype, self._tail = tensor.dtype, tail
            num_bytes = math.ceil(nested_bytes(tensor) * self._num_batches)
            self._store = Store(self._terms.budget, num_bytes)
            return tensor
        # only rows of one width are joined to a common dtype; padded ones take that of the rows before
        if tail[:1] == self._widest()[:1]:
            common = torch.promote_types(self._dtype, tensor.dtype)
            if common != self._dtype:
                self._start_again(common)
        return tensor.to(self._dtype)

    def _change_shape(self, tail: tuple[int, ...]) -> None:
        if len(tail) != len(self._tail):
            dims = f"had rows of {len(self._tail)} dimensions and now has some of {len(tail)}"
            raise ValueError(f"{self._path} {dims}. {APART}")
        self._runs.append((self._run, self._tail))
        self._run, self._tail = 0, tail

    def _widest(self) -> tuple[int, ...]:
        """The shape that every row fits into."""
        tails = {self._tail, *(tail for _, tail in self._runs)}
        return tuple(map(max, zip(*tails, strict=True)))

    def _start_again(self, dtype: torch.dtype | None) -> None:
        """Copy what there is to a new store, in another dtype if need be."""
        so_far = self.arrays()
        self._terms.budget.give_back(so_far.nbytes)
        self._clear()
        self._num_batches = 1
        self.add(torch.from_numpy(so_far).to(dtype))

    def arrays(self) -> np.ndarray:
        if self._result is None:
            assert self._store is not None
            assert self._dtype is not None
            runs, row = [*self._runs, (self._run, self._tail)], self._widest()
            if self._runs:
                self._spread(runs, row)
            num_rows = sum(rows for rows, _ in runs)
            shape = () if self._is_scalar and num_rows == 1 else (num_rows, *row)
            self._result = self._store.finish().view(stored_dtype(self._dtype)).reshape(shape)
            self._store = None
        return self._result

    def _spread(self, runs: list[tuple[int, tuple[int, ...]]], row: tuple[int, ...]) -> None:
        """Pad all rows to `row`, in place: from the last on, none lands on one that has yet to move."""
        assert self._store is not None
        assert self._dtype is not None
        store, dtype = self._store, stored_dtype(self._dtype)
        padding = to_host(torch.full((), self._terms.padding_index, dtype=self._dtype))
        wide = math.prod(row) * dtype.itemsize
        source, target = store.used, sum(rows for rows, _ in runs) * wide
        store.grow(target)
        for rows, tail in reversed(runs):
            narrow = math.prod(tail) * dtype.itemsize
            while rows and source != target:  # where they meet, all that is left lies right
                count = min(rows, max(1, BLOCK_BYTES // wide))
                rows, source, target = rows - count, source - count * narrow, target - count * wide
                store.fill(target, store.read(source, dtype, (count, *tail)), (count, *row), padding)


def _mismatch(path: str, before: str, now: str) -> TypeError:
    return TypeError(f"{path} was a {before} in the first batch and is a {now} in a later one. {APART}")
