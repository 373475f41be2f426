"""Reading with a seed: what a batch draws depends on its place alone, and disturbs no other generator."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from typing import Any, TypeVar

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
