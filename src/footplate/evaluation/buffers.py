"""Join nested batches row by row as they come, and return them as numpy arrays."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from footplate.batch import IGNORED_LABEL
from footplate.comm import find_batch_size, rebuild
from footplate.evaluation.memory_limit import MemoryBudget
from footplate.evaluation.store import BLOCK_BYTES, Store, stored_dtype, to_host

logger = logging.getLogger(__name__)

APART = "Set eval_do_concat_batches=False to keep the batches apart."


def nested_bytes(tensors: Any) -> int:
    """Bytes that the tensors and arrays of a structure take when they are stored."""
    return sum(
        leaf.numel() * stored_dtype(leaf.dtype).itemsize if isinstance(leaf, torch.Tensor) else leaf.nbytes
        for leaf in _leaves(tensors)
        if isinstance(leaf, (torch.Tensor, np.ndarray))
    )


@dataclass(slots=True)
class _Settings:
    """What all parts of one buffer share."""

    budget: MemoryBudget
    padding_index: int
    num_batches: float = 1.0  # how many will come, if all are as large as the first


class NestedBuffer:
    """Joins batches of one structure along their rows; shorter rows are padded at the end.

    Each batch is copied to the host when it is added, and joined once: the cost is linear in the batches.

    Args:
        num_rows: Rows that will be added, if known: memory is then allocated once.
        padding_index: The value of the padding.
        budget: Decides what may stay in memory.
        name: What messages call the content.
    """

    def __init__(
        self,
        num_rows: int | None = None,
        padding_index: int = IGNORED_LABEL,
        budget: MemoryBudget | None = None,
        name: str = "batch",
    ) -> None:
        self._num_rows = num_rows
        self._settings = _Settings(budget or MemoryBudget(), padding_index)
        self._name = name
        self._root: _Part | None = None

    def add(self, batch: Any) -> None:
        """Copy one more batch.

        Args:
            batch: A tensor or array, a list of objects with one per row, or a nested structure of them.
        """
        if self._root is None:
            rows = find_batch_size(batch)
            if self._num_rows and rows:
                self._settings.num_batches = max(1.0, self._num_rows / rows)
            self._root = _build_part(batch, self._name, self._settings)
        self._root.add(batch)

    def arrays(self) -> Any:
        """All batches as one structure of numpy arrays; None if nothing was added."""
        return None if self._root is None else self._root.arrays()


class _Part(Protocol):
    """One node of the structure: a container of parts, or a leaf."""

    def add(self, value: Any) -> None: ...
    def arrays(self) -> Any: ...


def _build_part(value: Any, path: str, settings: _Settings) -> _Part:
    """The part that stores `value` and the values at the same place of later batches."""
    if value is None:
        return _Empty(path)
    if _is_numeric(value):
        return _Array(path, settings)
    if _is_rows(value):
        return _Rows(path)
    if isinstance(value, Mapping):
        parts = {key: _build_part(item, f"{path}[{key!r}]", settings) for key, item in value.items()}
        return _Branch(path, rebuild(value, dict.fromkeys(value, np.empty(0))), parts)
    if isinstance(value, (list, tuple)):
        parts = {i: _build_part(item, f"{path}[{i}]", settings) for i, item in enumerate(value)}
        return _Branch(path, rebuild(value, [None] * len(value)), parts)
    logger.warning("%s is a %s, which cannot be joined: None takes its place.", path, type(value).__name__)
    return _Empty(path, is_left_out=True)


def _is_numeric(value: Any) -> bool:
    """Whether the value can be stored as an array of numbers."""
    if isinstance(value, (torch.Tensor, bool, int, float, np.number, np.bool_)):
        return True
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biufc"
    is_plain = type(value) in (list, tuple) and len(value) > 0
    return is_plain and all(isinstance(item, (bool, int, float)) for item in value)


def _is_rows(value: Any) -> bool:
    """Whether the value is Python objects, one per row: a list without tensors, or an array of objects."""
    if isinstance(value, np.ndarray):  # arrays of numbers were found by `_is_numeric`
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
        self._like = like  # without tensors: those of the first batch would stay in memory
        self._parts = parts

    def add(self, value: Any) -> None:
        if type(value) is not type(self._like):
            raise _mismatch(self._path, type(self._like).__name__, type(value).__name__)
        keys = list(value) if isinstance(value, Mapping) else list(range(len(value)))
        if set(keys) != self._parts.keys():
            raise ValueError(f"{self._path} had the parts {list(self._parts)} and now has {keys}. {APART}")
        for key, part in self._parts.items():
            part.add(value[key])

    def arrays(self) -> Any:
        items = {key: part.arrays() for key, part in self._parts.items()}
        return rebuild(self._like, items if isinstance(self._like, Mapping) else list(items.values()))


class _Empty:
    """A value that is None in every batch, or that is left out because it cannot be joined."""

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
        # filled after it is made: np.array(rows) would turn rows of equal length into a second dimension
        result = np.empty(len(self._rows), object)
        result[:] = self._rows
        return result


class _Array:
    """Rows of tensors: stored without padding as they come, padded to the widest shape at the end."""

    def __init__(self, path: str, settings: _Settings) -> None:
        self._path = path
        self._settings = settings
        self._num_batches = settings.num_batches
        self._clear()

    def _clear(self) -> None:
        self._store: Store | None = None
        self._result: np.ndarray | None = None
        self._dtype: torch.dtype | None = None
        self._row_shape: tuple[int, ...] = ()
        self._run = 0  # rows in sequence that have this shape
        self._earlier_runs: list[tuple[int, tuple[int, ...]]] = []  # number of rows and their shape
        self._is_scalar = False

    def add(self, value: Any) -> None:
        is_usual = type(value) is torch.Tensor and not value.requires_grad
        tensor = value if is_usual else self._as_tensor(value)
        if self._result is not None:  # the caller of `arrays` has it: do not change it
            self._copy_to_new_store(self._dtype)
        shape = tensor.shape
        row_shape = shape[1:]
        if tensor.dtype != self._dtype:
            tensor = self._change_dtype(tensor, row_shape)
        if row_shape != self._row_shape:
            self._change_shape(row_shape)
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

    def _change_dtype(self, tensor: torch.Tensor, row_shape: tuple[int, ...]) -> torch.Tensor:
        """Adapt to a new dtype, and return the tensor in the dtype in which the original would keep it."""
        if self._dtype is None:
            self._dtype, self._row_shape = tensor.dtype, row_shape
            num_bytes = math.ceil(nested_bytes(tensor) * self._num_batches)
            self._store = Store(self._settings.budget, num_bytes)
            return tensor
        # the original promotes dtypes only if it need not pad; else the new rows take the earlier dtype
        if row_shape[:1] == self._widest()[:1]:
            common = torch.promote_types(self._dtype, tensor.dtype)
            if common != self._dtype:
                self._copy_to_new_store(common)
        return tensor.to(self._dtype)

    def _change_shape(self, row_shape: tuple[int, ...]) -> None:
        if len(row_shape) != len(self._row_shape):
            dims = f"had rows of {len(self._row_shape)} dimensions and now has some of {len(row_shape)}"
            raise ValueError(f"{self._path} {dims}. {APART}")
        self._earlier_runs.append((self._run, self._row_shape))
        self._run, self._row_shape = 0, row_shape

    def _widest(self) -> tuple[int, ...]:
        """The shape that every row fits into."""
        shapes = {self._row_shape, *(shape for _, shape in self._earlier_runs)}
        return tuple(map(max, zip(*shapes, strict=True)))

    def _copy_to_new_store(self, dtype: torch.dtype | None) -> None:
        """Copy all rows to a new store, as `dtype`."""
        so_far = self.arrays()
        self._settings.budget.give_back(so_far.nbytes)
        self._clear()
        self._num_batches = 1  # the estimate was for batches as large as the first, and `so_far` is larger
        self.add(torch.from_numpy(so_far).to(dtype))

    def arrays(self) -> np.ndarray:
        if self._result is None:
            assert self._store is not None
            assert self._dtype is not None
            runs, row = [*self._earlier_runs, (self._run, self._row_shape)], self._widest()
            if self._earlier_runs:
                self._pad_rows(runs, row)
            num_rows = sum(rows for rows, _ in runs)
            shape = () if self._is_scalar and num_rows == 1 else (num_rows, *row)
            self._result = self._store.finish().view(stored_dtype(self._dtype)).reshape(shape)
            self._store = None
        return self._result

    def _pad_rows(self, runs: list[tuple[int, tuple[int, ...]]], row: tuple[int, ...]) -> None:
        """Pad all rows to the shape `row`, in place.

        The last row moves first, so a padded row never overwrites one that has not moved yet.
        """
        assert self._store is not None
        assert self._dtype is not None
        store, dtype = self._store, stored_dtype(self._dtype)
        padding = to_host(torch.full((), self._settings.padding_index, dtype=self._dtype))
        wide = math.prod(row) * dtype.itemsize
        source, target = store.used, sum(rows for rows, _ in runs) * wide
        store.grow(target)
        if len(row) and {shape[1:] for _, shape in runs} == {row[1:]} and store.pad(runs, row, padding):
            return
        for rows, shape in reversed(runs):
            narrow = math.prod(shape) * dtype.itemsize
            while rows and source != target:  # if equal, the rows before are in their place already
                count = min(rows, max(1, BLOCK_BYTES // wide))
                rows, source, target = rows - count, source - count * narrow, target - count * wide
                store.fill(target, store.read(source, dtype, (count, *shape)), (count, *row), padding)


def _mismatch(path: str, before: str, now: str) -> TypeError:
    return TypeError(f"{path} was a {before} in the first batch and is a {now} in a later one. {APART}")
