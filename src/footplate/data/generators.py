"""Random generators that datasets, collators and samplers hold themselves: found, captured, restored."""

from __future__ import annotations

import functools
import hashlib
import itertools
import logging
import random
import sysconfig
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

logger = logging.getLogger(__name__)

NUM_OBJECTS = 5_000  # how many are looked at, those nearest to dataset and collator first
NUM_ITEMS = 64  # entries of a list or dictionary that are looked at: a dataset may be a list of a million
_GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
_LEAVES = (
    *(type(None), bool, int, float, complex, str, bytes, bytearray, range),
    *(type, ModuleType, BuiltinFunctionType, np.ndarray, np.generic, torch.Tensor, torch.dtype, nn.Module),
)
_ITERATORS = (GeneratorType, itertools.count, itertools.cycle, itertools.chain, map, zip, enumerate)
_LIBRARIES = (sysconfig.get_paths()["stdlib"], str(Path(__file__).parents[1]), "<frozen")


class HeldGenerators:
    """The generators that are reachable from some objects, by the path that leads to each.

    Looked at are attributes, lists, tuples, dictionaries, closures, and the global variables that functions
    and methods of the user's own name.

    Args:
        parts: What to search, by name.
    """

    def __init__(self, **parts: Any) -> None:
        self.found: dict[str, Any] = {}
        self.lost: dict[str, str] = {}  # what draws or counts and cannot be stored: its path and its type
        self._initial: dict[str, bytes] = {}
        self._searched: dict[str, Any] = {}
        self._told: set[str] = set()
        self.search(**parts)

    def __len__(self) -> int:
        return len(self.found)

    def search(self, *, makes: bool = True, without: HeldGenerators | None = None, **parts: Any) -> None:
        """Add the generators of more parts.

        Args:
            makes: Make those that a collator makes from its `seed` when it is first called.
            without: Leave out the generators that are found there.
            parts: What to search, by name.
        """
        self._searched.update(parts)
        known = {id(value) for held in (self, without) if held is not None for value in held.found.values()}
        for path, value in _walk(parts, makes):
            if id(value) in known:
                continue
            known.add(id(value))
            if isinstance(value, random.SystemRandom) or not isinstance(value, _GENERATORS):
                self.lost[path] = type(value).__name__
            else:
                self.found[path] = value

    def capture(self) -> dict[str, Any]:
        """The state of each generator."""
        return {path: _read_state(generator) for path, generator in self.found.items()}

    def restore(self, states: Mapping[str, Any]) -> None:
        """Set the generators to what `capture` gave; those that it does not name stay as they are."""
        for path, generator in self.found.items():
            if path not in states:
                continue
            try:
                _write_state(generator, states[path])
            except Exception as error:
                raise ValueError(
                    f"The saved state of the random generator {path} does not fit it "
                    f"({type(generator).__name__}): {error}. Make the generator as the run did that saved it."
                ) from error
        if missing := states.keys() - self.found.keys() - self._told:
            self._told |= missing
            logger.warning(
                "The checkpoint holds the state of random generators that are not there now: %s. What they "
                "draw will differ from a run without interruption. Make them in __init__, not later.",
                ", ".join(sorted(missing)),
            )

    def name_lost(self) -> None:
        """Say which states a checkpoint cannot hold."""
        if self.lost:
            logger.warning(
                "A checkpoint cannot hold the state of %s: a resumed run starts it over and may read other "
                "values than this one. Draw from a numpy, torch or random.Random generator that is made in "
                "__init__, or from the global ones.",
                ", ".join(f"{path} ({kind})" for path, kind in self.lost.items()),
            )

    def name_late(self) -> None:
        """Search again after the first batches were read, and say which generators were made by that."""
        before = self.found.keys() | self._told
        self.search(makes=False, **self._searched)
        if late := self.found.keys() - before:
            self._told |= late
            logger.warning(
                "%s was made while the first batch was read. A resumed run makes it anew, so what it draws "
                "will differ from a run without interruption. Make it in __init__.",
                ", ".join(sorted(late)),
            )

    def seed(self, seed: int) -> None:
        """Seed each generator by a number, and by the state that it was found with: by its own seed."""
        if len(self._initial) < len(self.found):
            self._initial = {path: _fingerprint(generator) for path, generator in self.found.items()}
        for path, generator in self.found.items():
            digest = hashlib.sha256(b"%d %s" % (seed, self._initial[path])).digest()
            _seed(generator, int.from_bytes(digest[:8], "little"))


# ---- search ----


def _walk(parts: Mapping[str, Any], makes: bool) -> Iterator[tuple[str, Any]]:
    """Generators and iterators with their paths, the nearest first."""
    waiting = deque((name, value) for name, value in parts.items() if not isinstance(value, _LEAVES))
    seen: dict[int, Any] = {id(value): value for value in (random._inst, torch.default_generator)}
    seen[id(np.random.mtrand._rand)] = None
    while waiting and len(seen) < NUM_OBJECTS:
        path, value = waiting.popleft()
        if id(value) in seen:
            continue
        seen[id(value)] = value  # a reference, so that the id stays its own
        if isinstance(value, (*_GENERATORS, *_ITERATORS)):
            yield path, value
        elif not isinstance(value, (HeldGenerators, torch.utils.data.DataLoader)):
            with suppress(Exception):  # looking at an object of the user's must never stop a run
                if makes:
                    _make_generator(value)
                for name, entry in _parts_of(value):
                    if not isinstance(entry, _LEAVES):
                        waiting.append((f"{path}{name}", entry))


def _make_generator(collator: Any) -> None:
    """Let a collator that seeds itself when it is first called do so now."""
    if getattr(collator, "seed", None) is None or not hasattr(collator, "get_generator"):
        return
    if getattr(collator, "generator", False) is None:
        collator.generator = collator.get_generator(collator.seed)


def _parts_of(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object refers to, with the way to write it."""
    if isinstance(value, FunctionType):
        yield from _parts_of_function(value)
    elif isinstance(value, MethodType):
        yield "", value.__self__
        yield "", value.__func__
    elif isinstance(value, functools.partial):
        yield from (("", value.func), ("", value.args), ("", value.keywords))
    elif isinstance(value, Mapping):
        yield from ((f"[{key!r}]", entry) for key, entry in itertools.islice(_items(value), NUM_ITEMS))
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        entries = enumerate(itertools.islice(value, NUM_ITEMS))
        yield from ((f"[{number}]", entry) for number, entry in entries)
    if isinstance(getattr(value, "__dict__", None), dict):
        yield from ((f".{name}", entry) for name, entry in list(vars(value).items()))
    for kind in () if isinstance(value, FunctionType) else type(value).__mro__[:-1]:
        for name, entry in list(vars(kind).items()):
            is_method = isinstance(entry, FunctionType) and is_users(entry.__code__)
            if is_method or isinstance(entry, _GENERATORS):
                yield f".{name}", entry
            elif type(entry).__name__ == "member_descriptor" and hasattr(value, name):  # of __slots__
                yield f".{name}", getattr(value, name)


def _parts_of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    if not is_users(function.__code__):
        return
    yield from (("", function.__defaults__), ("", function.__kwdefaults__))
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f":{name}", cell.cell_contents
        except ValueError:  # a variable that was not set yet
            continue
    for name in sorted(names_in(function.__code__)):
        if name in function.__globals__:
            yield f":{name}", function.__globals__[name]


def _items(mapping: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    return iter(mapping.items()) if isinstance(mapping, dict) else iter(())


def names_in(code: CodeType) -> set[str]:
    """The global names that a function and those defined inside it use."""
    inner = (names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inner)


def is_users(code: CodeType) -> bool:
    """Whether code is neither of an installed library nor of Python nor of footplate."""
    return "-packages" not in code.co_filename and not code.co_filename.startswith(_LIBRARIES)


# ---- the state of one generator ----


def _read_state(generator: Any) -> Any:
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    return generator.getstate() if isinstance(generator, random.Random) else generator.get_state()


def _write_state(generator: Any, state: Any) -> None:
    if isinstance(generator, np.random.Generator):
        _check_indices(state)
        generator.bit_generator.state = _with_arrays(state)
    elif isinstance(generator, np.random.RandomState):
        _check_indices(state)
        generator.set_state(_with_arrays(state))
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.set_state(state)


def _check_indices(state: Mapping[str, Any]) -> None:
    """Refuse indices outside their array: numpy takes them from a file unchecked, and would read there."""
    inner = state["state"]
    position = inner.get("pos", 0) if isinstance(inner, Mapping) else 0
    if not 0 <= position <= 624 or not 0 <= state.get("buffer_pos", 0) <= 4:
        raise ValueError("an index lies outside its array")


def _with_arrays(state: Any) -> Any:
    """The state of a numpy generator; a file holds its arrays as lists."""
    if isinstance(state, Mapping):
        return {name: _with_arrays(entry) for name, entry in state.items()}
    return np.asarray(state, dtype=np.uint64) if isinstance(state, list) else state


def _seed(generator: Any, seed: int) -> None:
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = type(generator.bit_generator)(seed).state
    elif isinstance(generator, np.random.RandomState):
        kind = type(generator._bit_generator)
        generator.set_state(np.random.RandomState(kind(seed)).get_state(legacy=False))
    elif isinstance(generator, random.Random):
        generator.seed(seed)
    else:
        generator.manual_seed(seed & (2**63 - 1))


def _fingerprint(generator: Any) -> bytes:
    """Bytes that are the same for the same state."""
    state = _read_state(generator)
    text = state.numpy().tobytes() if isinstance(state, torch.Tensor) else repr(_as_lists(state)).encode()
    return hashlib.sha256(text).digest()


def _as_lists(state: Any) -> Any:
    if isinstance(state, Mapping):
        return {name: _as_lists(entry) for name, entry in state.items()}
    return state.tolist() if isinstance(state, np.ndarray) else state
