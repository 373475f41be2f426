"""The random state of this process: capture it, restore it, or run something that leaves it as it was."""

from __future__ import annotations

import ctypes
import functools
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.random.mtrand import get_bit_generator

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

logger = logging.getLogger(__name__)

RandomStates = dict[str, Any]

_Words = ctypes.c_uint32 * 625  # numpy's generator: 624 words, and the position among them
_known_numpy: tuple[tuple[int, ...], Any] = ((), None)  # what tells its states apart, and the last one


class Held(Protocol):
    """Generators besides the global ones, such as those that datasets and collators hold."""

    def __len__(self) -> int: ...

    def capture(self) -> dict[str, Any]:
        """Their states, by name."""

    def restore(self, states: dict[str, Any]) -> None:
        """Set them to what `capture` or a checkpoint gave."""


_held: Held | None = None


@contextmanager
def holding(held: Held) -> Iterator[None]:
    """Until the block ends, these generators are part of the random state too."""
    global _held
    outer, _held = _held, held
    try:
        yield
    finally:
        _held = outer


def capture(python: Any = None) -> RandomStates:
    """The states of Python's, numpy's, torch's and the accelerator's generator; `python` if it is known."""
    states: RandomStates = {
        "python": random.getstate() if python is None else python,
        "numpy": _numpy_state(),
        "cpu": torch.get_rng_state(),
    }
    name = _accelerator_name()
    if name is not None:
        states[name] = torch.get_device_module().get_rng_state()
    if _held:
        states["held"] = _held.capture()
    return states


def restore(states: RandomStates) -> None:
    """Set all generators to what `capture` or a checkpoint gave."""
    random.setstate(states["python"])
    np.random.set_state(_checked(states["numpy"]))
    torch.set_rng_state(states["cpu"])
    if _held and "held" in states:
        _held.restore(states["held"])
    name = _accelerator_name()
    if name is None:
        return
    if name not in states:
        logger.warning("The checkpoint has no random state for %s: it was written on another device.", name)
        return
    torch.get_device_module().set_rng_state(states[name])


class Recorder:
    """Captures the random states before every update, for 4 µs where nothing draws from Python's generator.

    Python's state takes 10 µs to copy and hardly ever changes. It is compared a few times at first, and now
    and then later; once it was seen to change, it is captured every time.
    """

    num_compared, interval = 16, 64

    def __init__(self) -> None:
        self._python = random.getstate()
        self._count = 0
        self._is_used = False

    def capture(self) -> RandomStates:
        """The states of all generators."""
        self._count += 1
        if self._is_used or self._count <= self.num_compared or self._count % self.interval == 0:
            self.compare()
        return capture(self._python)

    def compare(self) -> bool:
        """Whether the state of Python's generator in the last capture was the right one."""
        now = random.getstate()
        is_right = self._is_used or now == self._python
        self._is_used, self._python = not is_right or self._is_used, now
        return is_right


def to_plain(states: RandomStates) -> RandomStates:
    """The same states without arrays, so that a file of them can be read without running code."""
    kind, key, *rest = states["numpy"]
    plain = {**states, "numpy": (kind, np.asarray(key).tolist(), *rest)}
    for name in states.keys() & {"held", "own"}:
        plain[name] = _without_arrays(states[name])
    return plain


def _without_arrays(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_arrays(entry) for name, entry in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value


@contextmanager
def scoped(seed: int | None = None, states: RandomStates | None = None) -> Iterator[None]:
    """Leave the generators afterwards as they were before, whatever is drawn inside.

    Args:
        seed: What the generators start from inside; without it they go on from where they are.
        states: What `capture` gave, to start from inside.
    """
    before = capture()
    try:
        if states is not None:
            restore(states)
        elif seed is not None:
            seed_all(seed)
        yield
    finally:
        restore(before)


def data_seed(args: TrainingArguments) -> int:
    """The seed that decides which rows are read, and in which order."""
    return args.seed if args.data_seed is None else args.data_seed


def seed_all(seed: int) -> None:
    """Seed Python's, numpy's and torch's generators, those of all devices included."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # numpy takes no more than 32 bits
    torch.manual_seed(seed)


def _checked(state: Any) -> Any:
    """numpy's state; it takes the index into its array unchecked, and a file could let it read elsewhere."""
    if len(state) > 2 and not 0 <= state[2] <= 624:
        raise ValueError(
            f"The state of numpy's generator has the index {state[2]}; it must be from 0 to 624."
        )
    return state


def _numpy_state() -> Any:
    """numpy's global state; the last copy again if nothing was drawn since, as a new one takes 40 µs.

    Each draw moves the position, and a new seed or the 624th draw changes all words but the first: the
    position and three words tell states apart. numpy draws normal numbers in pairs and may hold one back,
    which leaves no trace there. A copy that holds one back is therefore never used again.
    """
    global _known_numpy
    generator = get_bit_generator()
    if not isinstance(generator, np.random.MT19937):
        return np.random.get_state()
    words = _words_at(generator.ctypes.state_address)
    mark = (words[624], words[1], words[2], words[3])
    if mark != _known_numpy[0]:
        state: Any = np.random.get_state()
        holds_one_back = state[3]
        _known_numpy = (() if holds_one_back else mark, state)
    return _known_numpy[1]


@functools.lru_cache(maxsize=1)  # the generator stays the same
def _words_at(address: int) -> Any:
    return _Words.from_address(address)


@functools.cache  # asking torch takes 15 µs, and the answer stays the same
def _accelerator_name() -> str | None:
    """The kind of accelerator that is in use, if there is one."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return None if accelerator is None else accelerator.type
