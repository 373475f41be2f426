"""A sequence of bytes that grows with each batch, in memory or in a file."""

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
BLOCK_BYTES = 1 << 20  # moved at once when rows are padded: small enough for the processor's cache
HUGE = 1 << 22  # bytes from which huge pages are faster


class Store:
    """A sequence of bytes: in memory as long as the budget allows, then in a file.

    Args:
        budget: Decides between memory and file.
        num_bytes: Expected size; memory that is never written to costs nothing.
    """

    def __init__(self, budget: MemoryBudget, num_bytes: int) -> None:
        self.used = 0
        self._budget = budget
        self._map: mmap.mmap | None = None
        self._bytes = np.empty(0, np.uint8)  # the map, as an array
        self._capacity = 0
        self._file: IO[bytes] | None = None
        self.grow(num_bytes)

    def append(self, tensor: torch.Tensor) -> None:
        """Copy a tensor, from any device, to the end."""
        array = to_host(tensor)  # host sync
        start, end = self.used, self.used + array.nbytes
        if end > self._capacity and self._file is None:
            self.grow(max(end, self._capacity + max(self._capacity // 8, MIN_GROWTH)))
        if self._file is not None:
            self._save(start, array)
        elif self._map is not None and array.flags.c_contiguous:
            self._map[start:end] = array  # type: ignore[call-overload]  # any bytes of that length
        else:
            self._bytes[start:end].view(array.dtype)[:] = array.reshape(-1)
        self.used = end

    def fill(self, start: int, rows: np.ndarray, shape: tuple[int, ...], padding: np.ndarray) -> None:
        """Write an array of `shape` at `start`: `rows` in its first corner, `padding` elsewhere."""
        num_bytes = math.prod(shape) * rows.itemsize
        in_memory = self._file is None
        target = self._bytes[start : start + num_bytes] if in_memory else np.empty(num_bytes, np.uint8)
        padded = target.view(rows.dtype).reshape(shape)
        corner = tuple(map(slice, rows.shape))
        ragged = [axis for axis, length in enumerate(shape) if rows.shape[axis] != length]
        if len(ragged) > 1:
            rows = rows.copy()  # they may lie where the padding goes
            padded.fill(padding)
        padded[corner] = rows
        if len(ragged) == 1:
            (axis,) = ragged
            beyond = (*corner[:axis], slice(rows.shape[axis], None), *corner[axis + 1 :])
            padded[beyond] = padding
        if not in_memory:
            self._save(start, padded)
        self.used = max(self.used, start + num_bytes)

    def pad(
        self, runs: list[tuple[int, tuple[int, ...]]], row: tuple[int, ...], padding: np.ndarray[Any, Any]
    ) -> bool:
        """Bring all rows to the shape `row`, from which they differ in their length alone; False in a file.

        Args:
            runs: How many rows in sequence have which shape.
            row: The shape of the longest.
            padding: What fills up the others; its dtype is that of the rows.
        """
        if self._file is not None:
            return False
        dtype, wide, num_rows = padding.dtype, math.prod(row), sum(rows for rows, _ in runs)
        most, end = max(1, BLOCK_BYTES // max(1, wide * dtype.itemsize)), self.used // dtype.itemsize
        flat = self._bytes[: self._capacity // dtype.itemsize * dtype.itemsize].view(dtype)
        padded = flat[: num_rows * wide].reshape(num_rows, *row)
        for rows, shape in reversed(runs):  # the last row moves first: it goes where nothing is left
            length, narrow = shape[0], math.prod(shape)
            while rows and end != num_rows * wide:  # if equal, the rows before are in their place already
                count = min(rows, most)
                rows, start, above = rows - count, end - count * narrow, num_rows - count
                padded[above:num_rows, :length] = flat[start:end].reshape(count, *shape)
                padded[above:num_rows, length:] = padding
                num_rows, end = above, start
        self.used = padded.nbytes
        return True

    def read(self, start: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
        """The array at `start`; a view of memory, so use it before the next write."""
        num_bytes = math.prod(shape) * dtype.itemsize
        if self._file is None:
            return self._bytes[start : start + num_bytes].view(dtype).reshape(shape)
        self._file.seek(start)
        return np.frombuffer(self._file.read(num_bytes), dtype).reshape(shape)

    def _save(self, start: int, array: np.ndarray) -> None:
        assert self._file is not None
        self._budget.write(self._file, start, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    def grow(self, num_bytes: int) -> None:
        """Make room for `num_bytes` in total; on the disk if the budget or the system refuses memory."""
        if self._file is not None or num_bytes <= self._capacity:
            return
        try:
            if self._budget.take(num_bytes - self._capacity):
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
        """Enlarge the memory map: the system moves its pages without copying them."""
        self._bytes = np.empty(0, np.uint8)  # a map with a view on it cannot be resized
        try:
            if self._map is None:
                self._map = _map_memory(num_bytes)
            else:
                self._map.resize(num_bytes)
        except (SystemError, BufferError):  # not supported here, or another view exists
            assert self._map is not None
            kept, self._map = self._map, _map_memory(num_bytes)
            self._map[: self.used] = kept[: self.used]
        finally:
            if self._map is not None:
                self._bytes = np.frombuffer(self._map, np.uint8)
            self._capacity = len(self._bytes)

    def finish(self) -> np.ndarray:
        """All bytes as one array; nothing may be added after this."""
        if self._file is None or not self.used:
            return self._bytes[: self.used]
        return np.memmap(self._file, np.uint8, "r+", shape=(self.used,))


def _map_memory(num_bytes: int) -> mmap.mmap:
    """Memory straight from the system: numpy's own, with huge pages, would be copied to be enlarged."""
    if not hasattr(mmap, "MAP_ANONYMOUS"):  # Windows
        return mmap.mmap(-1, num_bytes)
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if num_bytes >= HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


@cache
def stored_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    """The numpy dtype that stores a tensor: float32 for types that numpy does not have, as bfloat16."""
    try:
        return torch.empty(0, dtype=dtype).numpy().dtype
    except TypeError:
        return np.dtype(np.float32)


def to_host(tensor: torch.Tensor) -> np.ndarray:
    """The tensor as a numpy array of its stored dtype."""
    try:
        return tensor.numpy()  # a view, if it is on the host and numpy has its dtype
    except (RuntimeError, TypeError):
        return (tensor.float() if stored_dtype(tensor.dtype) == np.float32 else tensor).numpy(force=True)
