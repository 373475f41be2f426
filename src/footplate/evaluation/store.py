"""Bytes that grow as batches come, in memory or in a file."""

from __future__ import annotations

import errno
import math
import mmap
from functools import cache
from typing import IO, Any

import numpy as np
import torch

from footplate.evaluation.memory_limit import MemoryBudget

MIN_GROWTH = 1 << 16
HUGE = 1 << 22  # bytes from which huge pages pay


class Store:
    """Bytes in a row: in memory as long as the budget allows, then in a file.

    Args:
        budget: Who decides.
        num_bytes: How much will come; pages that nothing is written to cost nothing.
    """

    def __init__(self, budget: MemoryBudget, num_bytes: int) -> None:
        self.used = 0
        self._budget = budget
        self._map: mmap.mmap | None = None
        self._bytes = np.empty(0, np.uint8)  # the map, as an array
        self._file: IO[bytes] | None = None
        self.grow(num_bytes)

    def append(self, tensor: torch.Tensor) -> None:
        """Copy a tensor from wherever it is to the end."""
        dtype = stored_dtype(tensor.dtype)
        start, end = self.used, self.used + tensor.numel() * dtype.itemsize
        capacity = len(self._bytes)
        if end > capacity and self._file is None:
            self.grow(max(end, capacity + max(capacity // 8, MIN_GROWTH)))
        if self._file is None:
            self._bytes[start:end].view(dtype)[:] = to_host(tensor).reshape(-1)  # host sync
        else:
            self._save(start, to_host(tensor))
        self.used = end

    def fill(self, start: int, rows: np.ndarray, shape: tuple[int, ...], padding: np.ndarray) -> None:
        """Put `rows` at `start`, in the corner of an array of `shape` that is else full of `padding`."""
        num_bytes = math.prod(shape) * rows.itemsize
        in_memory = self._file is None
        target = self._bytes[start : start + num_bytes] if in_memory else np.empty(num_bytes, np.uint8)
        if np.may_share_memory(target, rows):
            rows = rows.copy()
        padded = target.view(rows.dtype).reshape(shape)
        if rows.shape != shape:
            padded.fill(padding)
        padded[tuple(map(slice, rows.shape))] = rows
        if not in_memory:
            self._save(start, padded)
        self.used = max(self.used, start + num_bytes)

    def read(self, start: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
        """An array that lies at `start`, to be used before the next write."""
        num_bytes = math.prod(shape) * dtype.itemsize
        if self._file is None:
            return self._bytes[start : start + num_bytes].view(dtype).reshape(shape)
        self._file.seek(start)
        return np.frombuffer(self._file.read(num_bytes), dtype).reshape(shape)

    def _save(self, start: int, array: np.ndarray) -> None:
        assert self._file is not None
        self._budget.write(self._file, start, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    def grow(self, num_bytes: int) -> None:
        """Make room for `num_bytes` in all, on the disk if the budget or the system gives no memory."""
        if self._file is not None or num_bytes <= len(self._bytes):
            return
        try:
            if self._budget.take(num_bytes - len(self._bytes)):
                self._resize(num_bytes)
                return
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise
            self._budget.spill(num_bytes)
        self._file = self._budget.open_file()
        self._budget.write(self._file, 0, self._bytes[: self.used].data)
        self._map, self._bytes = None, np.empty(0, np.uint8)

    def _resize(self, num_bytes: int) -> None:
        """Enlarge the map: the system moves its pages and copies none of them."""
        self._bytes = np.empty(0, np.uint8)  # a map that is looked at keeps its size
        try:
            if self._map is None:
                self._map = _map_memory(num_bytes)
            else:
                self._map.resize(num_bytes)
        except (SystemError, BufferError):  # the system cannot, or somebody looks at it after all
            assert self._map is not None
            kept, self._map = self._map, _map_memory(num_bytes)
            self._map[: self.used] = kept[: self.used]
        finally:
            if self._map is not None:
                self._bytes = np.frombuffer(self._map, np.uint8)

    def finish(self) -> np.ndarray:
        """All bytes as one array, which nothing writes to any more."""
        if self._file is None or not self.used:
            return self._bytes[: self.used]
        return np.memmap(self._file, np.uint8, "r+", shape=(self.used,))


def _map_memory(num_bytes: int) -> mmap.mmap:
    """Memory outside of malloc's, which copies to enlarge where numpy has asked for huge pages."""
    if not hasattr(mmap, "MAP_ANONYMOUS"):  # Windows
        return mmap.mmap(-1, num_bytes)
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if num_bytes >= HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


@cache
def stored_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    """How numpy keeps a tensor: float32 for the short floats it does not know."""
    try:
        return torch.empty(0, dtype=dtype).numpy().dtype
    except TypeError:
        return np.dtype(np.float32)


def to_host(tensor: torch.Tensor) -> np.ndarray:
    """The tensor as it is stored."""
    is_known = stored_dtype(tensor.dtype) != np.float32 or tensor.dtype == torch.float32
    return (tensor if is_known else tensor.float()).numpy(force=True)
