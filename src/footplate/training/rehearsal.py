"""Try a user's function before it counts: its state is put back afterwards, and a failure is described."""

from __future__ import annotations

import functools
import linecache
import operator
import os
import random
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np
import torch

from footplate.training.buffers import can_be_copied

NUM_OBJECTS = 50_000  # beyond so many, a function is not tried: looking at its state would take too long
NUM_BYTES = 16 * 2**20  # the largest array that is copied
_CONSTANT = (type(None), bool, int, float, complex, str, bytes, range, type, ModuleType, BuiltinFunctionType)
_LIBRARIES = (str(Path(os.__file__).parent), str(Path(__file__).parents[1]))


class CannotPutBack(Exception):
    """A function refers to something that a trial would change for good."""


class Kept:
    """The state that functions refer to: lists, dictionaries, attributes, variables, arrays, generators.

    It is found from closures, defaults, global variables and attributes, and through functions of the user's
    own. What lies behind them (files, services, objects without attributes) is not.

    Args:
        functions: Whose state it is; None among them counts for nothing.
        limit: How many objects to look at.
        keeps_arrays: Copy arrays too; else they are taken for data that nobody writes to.
    """

    def __init__(self, functions: Iterable[Any], limit: int, keeps_arrays: bool = True) -> None:
        self._limit, self._keeps_arrays = limit, keeps_arrays
        self.holds_generator = False
        self._restores: list[Callable[[], Any]] = []
        self._seen: dict[int, Any] = {}
        remaining = list(functions)
        while remaining:
            value = remaining.pop()
            if isinstance(value, _CONSTANT) or id(value) in self._seen:
                continue
            self._seen[id(value)] = value  # a reference, so that the id stays its own
            if len(self._seen) + len(remaining) > limit:
                raise CannotPutBack(f"it refers to more than {limit} objects")
            remaining.extend(item for item in self._keep(value) if not isinstance(item, _CONSTANT))

    def put_back(self) -> None:
        """Set everything to what it was."""
        for restore in reversed(self._restores):
            restore()

    def _keep(self, value: Any) -> Iterable[Any]:
        """Note the state of one object, and return what it refers to."""
        if isinstance(value, (dict, list, tuple, set, frozenset, deque)) and len(value) > 4 * self._limit:
            raise CannotPutBack(f"it refers to a {type(value).__name__} of {len(value)} items")
        if isinstance(value, FunctionType):
            return self._keep_function(value) if is_users(value.__code__) else ()
        if isinstance(value, MethodType):
            return value.__self__, value.__func__
        if isinstance(value, functools.partial):
            return value.func, value.args, value.keywords
        if isinstance(value, (tuple, frozenset)):
            return value
        if isinstance(value, dict):
            old = dict(value)
            self._restores.append(lambda: _refill(value, value.update, old))
            return list(value.values())
        if isinstance(value, (list, deque, set, bytearray)):
            items = list(value)
            fill = value.update if isinstance(value, set) else value.extend
            self._restores.append(lambda: _refill(value, fill, items))
            return items
        if isinstance(value, (np.ndarray, torch.Tensor)):
            if self._keeps_arrays:
                self._keep_array(value)
            return ()
        if isinstance(value, (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)):
            self._keep_generator(value)
            return ()
        if isinstance(value, Iterator):
            raise CannotPutBack(f"it reads from a {type(value).__name__}, which cannot be read again")
        slots = self._keep_slots(value)
        return [value.__dict__, *slots] if isinstance(getattr(value, "__dict__", None), dict) else slots

    def _keep_slots(self, value: Any) -> list[Any]:
        """Note the attributes of an object that are in no dictionary."""
        found: list[Any] = []
        kind: Any = type(value)
        for slot in _slots_of(kind):
            try:
                content = slot.__get__(value)
            except AttributeError:  # not set yet
                self._restores.append(functools.partial(_clear_slot, slot, value))
                continue
            self._restores.append(functools.partial(slot.__set__, value, content))
            found.append(content)
        return found

    def _keep_function(self, function: FunctionType) -> list[Any]:
        found: list[Any] = [function.__defaults__, function.__kwdefaults__, function.__dict__]
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:  # a variable that was not set yet
                self._restores.append(functools.partial(_clear_cell, cell))
                continue
            self._restores.append(functools.partial(setattr, cell, "cell_contents", content))
            found.append(content)
        variables = function.__globals__
        for name in _names_in(function.__code__):
            if name in variables:
                self._restores.append(functools.partial(variables.__setitem__, name, variables[name]))
                found.append(variables[name])
            else:  # the function may make it at its first call
                self._restores.append(functools.partial(variables.pop, name, None))
        return found

    def _keep_array(self, value: Any) -> None:
        if isinstance(value, torch.Tensor) and not can_be_copied(value):
            return
        if value.nbytes > NUM_BYTES:
            raise CannotPutBack(f"it refers to an array of {value.nbytes} bytes")
        if isinstance(value, torch.Tensor):
            self._restores.append(functools.partial(write_back, value, value.detach().clone()))
        elif value.flags.writeable:
            old = value.copy()
            self._restores.append(lambda: np.copyto(value, old))

    def _keep_generator(self, value: Any) -> None:
        self.holds_generator = True
        if isinstance(value, np.random.Generator):
            bits, state = value.bit_generator, value.bit_generator.state
            self._restores.append(lambda: setattr(bits, "state", state))
        elif isinstance(value, random.Random):
            self._restores.append(functools.partial(value.setstate, value.getstate()))
        else:
            self._restores.append(functools.partial(value.set_state, value.get_state()))


@contextmanager
def undisturbed(*functions: Any) -> Iterator[None]:
    """Put the state that functions refer to back afterwards; raises CannotPutBack if that is not possible."""
    kept = Kept(functions, NUM_OBJECTS)
    try:
        yield
    finally:
        kept.put_back()


def describe_failure(error: BaseException) -> str:
    """The type and text of an error, and the line of the user's own code that it came through last."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = list(traceback.walk_tb(error.__traceback__))
    own = [(frame.f_code, line) for frame, line in frames if is_users(frame.f_code)]
    if not own:
        return text
    code, line = own[-1]
    source = linecache.getline(code.co_filename, line).strip()
    return f"{text} ({code.co_filename}, line {line}, in {code.co_name}{f': {source}' if source else ''})"


def _refill(container: Any, fill: Callable[[Any], Any], old: Any) -> None:
    """Give a container its former contents, unless it has them still."""
    now = container.items() if isinstance(container, dict) else container
    before = old.items() if isinstance(container, dict) else old
    if len(now) != len(before) or not all(map(_is_same, now, before)):
        container.clear()
        fill(old)


def _is_same(now: Any, before: Any) -> bool:
    """Whether two entries are the same objects; those of dictionaries are pairs made anew."""
    if now is before:
        return True
    are_pairs = type(now) is type(before) is tuple and len(now) == len(before)
    return are_pairs and all(map(operator.is_, now, before))


@functools.cache
def _slots_of(kind: Any) -> tuple[MemberDescriptorType, ...]:
    """What a class declares as `__slots__`."""
    holders = [vars(base) for base in kind.__mro__ if "__slots__" in vars(base)]
    return tuple(one for held in holders for one in held.values() if isinstance(one, MemberDescriptorType))


def _clear_slot(slot: MemberDescriptorType, value: Any) -> None:
    """Take away an attribute that was not there, if it is now."""
    with suppress(AttributeError):
        slot.__delete__(value)


def _clear_cell(cell: CellType) -> None:
    """Take away the value of a variable that had none."""
    with suppress(ValueError):
        del cell.cell_contents


def write_back(tensor: torch.Tensor, copied: torch.Tensor) -> None:
    """Give a tensor its former values, and its former shape if it was resized."""
    if tensor.shape == copied.shape:
        tensor.detach().copy_(copied)
    else:
        tensor.data = copied.to(tensor.device)


def _names_in(code: CodeType) -> set[str]:
    """The global names that a function and those defined inside it use."""
    inner = (_names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inner)


def is_users(code: CodeType) -> bool:
    """Whether code is neither of an installed library nor of Python nor of footplate."""
    file = code.co_filename
    return "-packages" not in file and not file.startswith((*_LIBRARIES, "<frozen"))
