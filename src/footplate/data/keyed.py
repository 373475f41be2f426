"""A shuffled order that is computed from the position: any place in a billion rows, without memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, overload

import numpy as np

from footplate.data.order import SampleOrder

Words = np.ndarray[Any, np.dtype[np.uint64]]

NUM_ROUNDS = 8  # six are enough for many rows, but leave patterns in the neighbours of fewer than a hundred
BLOCK_SIZE = 8192  # positions that are computed together: their arrays stay in the processor's cache
MAX_GAP = 1024  # rows between two batches, up to which computing a block costs less than single batches

_HALF = np.uint64(32)
# Odd numbers with an irregular pattern of bits: a product spreads every bit of the input over its upper half.
_FIRST_FACTOR, _SECOND_FACTOR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)


class KeyedOrder(SampleOrder):
    """Every sample once per epoch, shuffled by a keyed permutation instead of a list of all indices.

    A row costs about as much time as in `RandomOrder` (`docs/data.md` has figures), spread over the epoch
    instead of spent before its first batch.

    Args:
        num_samples: How many samples one epoch holds.
        seed: Together with the epoch, the key of the permutation.
    """

    def indices(self, epoch: int) -> Sequence[int]:
        """The permutation of this seed and epoch; an index is computed when it is asked for."""
        return KeyedIndices(BlockReader(Permutation(self.num_samples, self.seed, epoch)))


class Permutation:
    """A shuffle of `range(num_rows)` as a function: position in, index out.

    A position is a cell of a grid that is nearly square. Each round moves every cell along its row, by a
    keyed hash of the row, or along its column, by a hash of the column: a Feistel network, which maps the
    grid onto itself. A result that is no index goes through again until it is one (cycle-walking); the grid
    has less than one row of cells too many, so that is rare.
    """

    def __init__(self, num_rows: int, seed: int, epoch: int) -> None:
        self.num_rows = num_rows
        height = math.isqrt(max(num_rows - 1, 0)) + 1
        self._height, self._width = np.uint64(height), np.uint64(max(-(-num_rows // height), 1))
        source = np.random.SeedSequence(seed % 2**64, spawn_key=(epoch,))
        self._keys = source.generate_state(NUM_ROUNDS, np.uint64)

    def __call__(self, positions: Words) -> Words:
        """The indices at `positions`."""
        indices = self._shuffle(positions)
        while len(outside := np.flatnonzero(indices >= self.num_rows)):
            indices[outside] = self._shuffle(indices[outside])
        return indices

    def _shuffle(self, cells: Words) -> Words:
        """For every cell of the grid another one."""
        rows: Words = cells // self._width
        columns = cells - rows * self._width
        for along_row, along_column in zip(self._keys[::2], self._keys[1::2], strict=True):
            _move(columns, self._width, rows, along_row)
            _move(rows, self._height, columns, along_column)
        rows *= self._width
        rows += columns
        return rows


def _move(places: Words, size: np.uint64, lines: Words, key: np.uint64) -> None:
    """Move `places` in place by a hash of their lines, round to the beginning at `size`."""
    steps = lines + key
    steps *= _FIRST_FACTOR
    steps ^= steps >> _HALF
    steps *= _SECOND_FACTOR
    steps >>= _HALF  # the upper half is a number below 2**32: scaled down to one below `size`
    steps *= size
    steps >>= _HALF
    places += steps
    # unsigned: what is below `size` becomes very large when `size` is subtracted
    np.minimum(places, places - size, out=places)


class BlockReader:
    """Reads a permutation in blocks where positions follow each other closely, and keeps the last block."""

    def __init__(self, permutation: Permutation) -> None:
        self.permutation = permutation
        self._last = -1 - 2 * MAX_GAP  # the position that was read last
        self._block: tuple[range, list[int]] = (range(0), [])

    def read(self, wanted: range) -> list[int]:
        """The indices at the positions `wanted`, of which there is at least one."""
        first, last = wanted[0], wanted[-1]
        block, values = self._block
        is_near = 0 < first - self._last <= MAX_GAP * wanted.step
        self._last = last
        if not (wanted.step == block.step and first in block and last in block):
            block = self._ahead(wanted) if is_near and len(wanted) < BLOCK_SIZE else wanted
            values = self._compute(block)
            self._block = block, values
        start = block.index(first)
        return values[start : start + len(wanted)]

    def _ahead(self, wanted: range) -> range:
        """The positions of a whole block that starts with `wanted`."""
        end = min(wanted[0] + BLOCK_SIZE * wanted.step, self.permutation.num_rows)
        return range(wanted[0], end, wanted.step)

    def _compute(self, block: range) -> list[int]:
        """Plain integers, as datasets expect them."""
        positions = np.arange(block.start, block.stop, block.step, dtype=np.int64).view(np.uint64)
        values: list[int] = self.permutation(positions).tolist()
        return values


class KeyedIndices(Sequence[int]):
    """The indices at a range of positions, computed when asked for; a slice is again one of these."""

    def __init__(self, reader: BlockReader, positions: range | None = None) -> None:
        self._reader = reader
        self._positions = range(reader.permutation.num_rows) if positions is None else positions

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, place: int) -> int: ...

    @overload
    def __getitem__(self, place: slice) -> KeyedIndices: ...

    def __getitem__(self, place: int | slice) -> int | KeyedIndices:
        chosen = self._positions[place]
        if isinstance(chosen, range):
            return KeyedIndices(self._reader, chosen)
        return self._reader.read(range(chosen, chosen + 1))[0]

    def __iter__(self) -> Iterator[int]:
        positions = self._positions
        if 0 < len(positions) <= BLOCK_SIZE:  # a batch
            return iter(self._reader.read(positions))
        blocks = (positions[start : start + BLOCK_SIZE] for start in range(0, len(positions), BLOCK_SIZE))
        return chain.from_iterable(map(self._reader.read, blocks))
