"""Reading with a seed: what a batch draws depends on its place alone, and disturbs no other generator."""

from __future__ import annotations

import ctypes
import random
import struct
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.random.mtrand import get_bit_generator, set_bit_generator

Collate = Callable[[list[Any]], Any]
Result = TypeVar("Result")

_LOW_64 = 2**64 - 1
_LOW_32 = 2**32 - 1
_MT19937_BYTES = 625 * 4  # 624 words and the place among them

_spare_generators: list[np.random.MT19937] = []  # several only where one read happens inside another


def mix_seed(seed: int, part: int) -> int:
    """A 64-bit seed that differs in about half its bits when either number changes by one."""
    mixed = (seed + (part + 1) * 0x9E3779B97F4A7C15) & _LOW_64
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _LOW_64
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _LOW_64
    return mixed ^ (mixed >> 31)


def seed_of(*parts: int) -> int:
    """One seed for a sequence of numbers."""
    seed = 0
    for part in parts:
        seed = mix_seed(seed, part)
    return seed


def seed_generators(seed: int) -> None:
    """Seed what data draws from: Python's, numpy's and torch's global generators on the CPU."""
    random.seed(seed)
    # torch and numpy run the same algorithm on 32 bits: from the same bits they would draw alike
    np.random.seed(seed >> 32)
    torch.default_generator.manual_seed(seed & _LOW_32)


def read_seeded(seed: int, read: Callable[..., Result], *args: Any) -> Result:
    """`read(*args)` on generators that start from `seed`; afterwards they are as if nothing had been."""
    python_state, torch_state = random.getstate(), torch.default_generator.get_state()
    numpy_generator = get_bit_generator()
    numpy_state = _state_with_normal(numpy_generator)
    spare = _spare_generators.pop() if _spare_generators else np.random.MT19937(0)
    set_bit_generator(spare)  # to copy numpy's state there and back would take 100 µs
    try:
        seed_generators(seed)
        return read(*args)
    finally:
        random.setstate(python_state)
        torch.default_generator.set_state(torch_state)
        set_bit_generator(numpy_generator)
        _spare_generators.append(spare)
        if numpy_state is not None:
            np.random.set_state(numpy_state)


class SeededReads:
    """Reads on seeded generators that skip the seeding once it is known to change nothing.

    Most data draws nothing, and to save, seed and restore three generators takes longer than many a read. So
    after some seeded reads that drew nothing, a read is only watched; one that draws after all is undone
    and made again, seeded, and so is every one after it.
    """

    num_tried = 8

    def __init__(self) -> None:
        self._num_quiet = 0
        self._without_normal = b""  # numpy's memory when it was last seen to hold no normal number back

    def read(self, seed: int, read: Callable[..., Result], *args: Any) -> Result:
        """`read(*args)`, with the same result as `read_seeded`."""
        before = _Snapshot.take() if self._num_quiet >= self.num_tried else None
        if before is None or self._holds_normal(before):
            result: Result = read_seeded(seed, self._read_and_look, read, *args)
            return result
        try:
            result = read(*args)
        except BaseException:
            before.restore()
            raise
        if before == _Snapshot.take():
            return result
        before.restore()
        self._num_quiet = -1  # it does draw
        return read_seeded(seed, read, *args)

    def _holds_normal(self, now: _Snapshot) -> bool:
        """Whether numpy has a normal number in hand, which could be drawn without a trace in its memory."""
        if now.numpy == self._without_normal:
            return False
        generator = get_bit_generator()
        state = _state_with_normal(generator)
        set_bit_generator(generator)  # drops the normal number that looking left in hand
        if state is not None:
            np.random.set_state(state)
            return True
        self._without_normal = now.numpy
        return False

    def _read_and_look(self, read: Callable[..., Result], *args: Any) -> Result:
        """Read, and count the reads that drew nothing."""
        before = _Snapshot.take() if self._num_quiet >= 0 else None
        result = read(*args)
        if before is not None:
            self._num_quiet = self._num_quiet + 1 if before == _Snapshot.take() else -1
        return result


class _Snapshot(NamedTuple):
    """The memory of the three generators, copied and compared in some microseconds."""

    python: bytes
    python_normal: Any
    numpy: bytes
    torch: bytes

    @classmethod
    def take(cls) -> _Snapshot | None:
        """What they are now; None where it cannot be told."""
        generator = get_bit_generator()
        if not _PYTHON_IS_KNOWN or not isinstance(generator, np.random.MT19937):
            return None
        state = torch.default_generator.get_state()
        return cls(
            ctypes.string_at(_PYTHON_ADDRESS, _MT19937_BYTES),
            _PYTHON_GENERATOR.gauss_next,
            ctypes.string_at(generator.ctypes.state_address, _MT19937_BYTES),
            ctypes.string_at(state.data_ptr(), state.nbytes),
        )

    def restore(self) -> None:
        """Make them so again."""
        ctypes.memmove(_PYTHON_ADDRESS, self.python, _MT19937_BYTES)
        _PYTHON_GENERATOR.gauss_next = self.python_normal
        generator = get_bit_generator()
        ctypes.memmove(generator.ctypes.state_address, self.numpy, _MT19937_BYTES)
        set_bit_generator(generator)  # drops a normal number that is in hand: there was none
        state = torch.frombuffer(bytearray(self.torch), dtype=torch.uint8)
        torch.default_generator.set_state(state)


def _knows_python_layout() -> bool:
    """Whether Python's generator keeps its place and its 624 words right behind the object's head."""
    if sys.implementation.name != "cpython":
        return False
    place, *words = struct.unpack("=i624I", ctypes.string_at(_PYTHON_ADDRESS, _MT19937_BYTES))
    return bool(random.getstate()[1] == (*words, place))


_PYTHON_GENERATOR: Any = random._inst  # what `random.random` and the rest draw from
_PYTHON_ADDRESS = id(_PYTHON_GENERATOR) + object.__basicsize__
_PYTHON_IS_KNOWN = _knows_python_layout()


def _state_with_normal(generator: Any) -> Any:
    """The state of numpy's global generator if it holds a normal number back, which a swap would drop.

    numpy draws normal numbers in pairs, and tells only with a copy of its whole state, in 50 µs, whether one
    is left. To draw one takes 1 µs: if the generator's memory did not move, it was the one held back.
    """
    if not isinstance(generator, np.random.MT19937):
        state: Any = np.random.get_state(legacy=False)
        return state if state["has_gauss"] else None
    address = generator.ctypes.state_address
    memory = ctypes.string_at(address, _MT19937_BYTES)
    normal = np.random.standard_normal()
    if ctypes.string_at(address, _MT19937_BYTES) == memory:
        return {**np.random.get_state(legacy=False), "has_gauss": 1, "gauss": normal}
    ctypes.memmove(address, memory, _MT19937_BYTES)
    return None


def fetch_rows(dataset: Any, indices: Any) -> Any:
    """The samples of these indices, in one call if the dataset can."""
    fetch_many = getattr(dataset, "__getitems__", None)
    return fetch_many(indices) if fetch_many else [dataset[index] for index in indices]


def read_rows(dataset: Any, indices: Any, collate: Collate) -> Any:
    """The batch of these indices."""
    return collate(fetch_rows(dataset, indices))


class SeededRows:
    """A dataset as workers read it: a request is the seed of a batch and its indices.

    The collator runs in the same process right after, on the generators as reading left them.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitems__(self, request: tuple[int, Any]) -> Any:
        seed, indices = request
        seed_generators(seed)
        return fetch_rows(self.dataset, indices)
