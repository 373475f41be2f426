"""Arrays, numbers of numpy, deques and durations in a `torch.save` file, made by functions of our own.

A pickle calls what it names, and `numpy.ndarray`, called by a file, makes an array whose bytes count as
pointers. So the names that numpy and Python write for these values stand for functions of this file, which
take numbers and bytes; nothing of numpy itself can be called.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import torch

NUMERIC_KINDS = "biufc"  # booleans, integers, floating and complex numbers
_MAX_DIMENSIONS = 32
_lock = threading.Lock()  # what torch trusts is one set for the whole process
# of the file that is being read, by id; the objects are kept, as an id is given again when one is freed
_unfinished: dict[int, tuple[Any, Callable[[], Any]]] = {}


class TypeInFile:
    """Stands for a numpy type: its byte order follows after it was made."""

    def __init__(self, text: Any, align: Any = False, copy: Any = True) -> None:
        if not isinstance(text, str) or not re.fullmatch(f"[{NUMERIC_KINDS}](1|2|4|8|16|32)", text):
            raise ValueError(f"It has an array of type {text!r}, and only arrays of numbers are read.")
        self.finished = np.dtype(text)
        _unfinished[id(self)] = (self, lambda: self.finished)

    def __setstate__(self, state: Any) -> None:
        if state[1] not in ("<", ">", "|", "=") or any(part is not None for part in state[2:5]):
            raise ValueError("It has an array whose type is damaged.")
        self.finished = self.finished.newbyteorder(state[1])


class ArrayInFile:
    """Stands for a numpy array: its shape, type and numbers follow after it was made."""

    def __init__(self, *unused: Any) -> None:
        self.finished: Any = None
        _unfinished[id(self)] = (self, self.finish)

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, is_fortran, data = state
        is_shape = isinstance(shape, tuple) and all(type(size) is int and size >= 0 for size in shape)
        if not is_shape or len(shape) > _MAX_DIMENSIONS:
            raise ValueError(f"It has an array of shape {shape!r}.")
        # `reshape` refuses a shape that does not fit the bytes
        self.finished = _read_numbers(kind, data).reshape(shape, order="F" if is_fortran else "C")

    def finish(self) -> Any:
        """The array; raises if its numbers never came."""
        if self.finished is None:
            raise ValueError("It has an array without numbers.")
        return self.finished


class ArrayName:
    """What `numpy.ndarray` means in a file: a name that is handed over and cannot be called."""

    __slots__ = ()

    def __new__(cls, *unused: Any) -> ArrayName:
        raise ValueError("It makes arrays by itself, which could use any memory of this process.")


def _read_numbers(kind: Any, data: Any) -> Any:
    """A flat array with memory of its own."""
    if type(kind) is not TypeInFile or type(data) is not bytes:
        raise ValueError("It has an array of objects, and only arrays of numbers are read.")
    return np.frombuffer(data, kind.finished).copy() if data else np.empty(0, kind.finished)


def _read_scalar(kind: Any, data: Any) -> Any:
    numbers = _read_numbers(kind, data)
    if numbers.size != 1:
        raise ValueError("It has a number of numpy that is damaged.")
    return numbers[0]


def _begin_deque(items: Any = (), maxlen: Any = None) -> list[Any]:
    """A list that becomes a deque in the end: torch adds items only to lists."""
    values = list(items)
    _unfinished[id(values)] = (values, lambda: deque(values, maxlen))
    return values


def _read_duration(days: Any, seconds: Any, microseconds: Any) -> timedelta:
    return timedelta(int(days), int(seconds), int(microseconds))


def _empty_bytes() -> bytes:
    return b""


_STAND_INS: list[Any] = [
    # numpy 1 wrote the first of these names, numpy 2 writes the second
    *((ArrayInFile, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")),
    *((_read_scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
    (ArrayName, "numpy.ndarray"),
    (TypeInFile, "numpy.dtype"),
    (_begin_deque, "collections.deque"),
    (_read_duration, "datetime.timedelta"),
    (_empty_bytes, "builtins.bytes"),  # how an array without numbers is written
]
_NAMES = {name for _, name in _STAND_INS}


def read_with_stand_ins(load: Callable[[], Any]) -> Any:
    """What `load` reads with torch's safe reader, with arrays, numbers of numpy, deques and durations."""
    with _lock:
        try:
            with _trusted():
                values = load()
            return _finish(values, {}) if _unfinished else values
        finally:
            _unfinished.clear()


@contextmanager
def _trusted() -> Iterator[None]:
    """Let torch call the stand-ins, and nothing of numpy even if the program has allowed that."""
    known = torch.serialization.get_safe_globals()
    replaced = [entry for entry in known if _name_of(entry) in _NAMES or _name_of(entry).startswith("numpy.")]
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals([*(e for e in known if e not in replaced), *_STAND_INS])
    try:
        yield
    finally:
        now = torch.serialization.get_safe_globals()  # another thread may have added to them
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals([*(e for e in now if e not in _STAND_INS), *replaced])


def _name_of(entry: Any) -> str:
    return str(entry[1]) if isinstance(entry, tuple) else f"{entry.__module__}.{entry.__qualname__}"


def _finish(value: Any, seen: dict[int, tuple[Any, Any]]) -> Any:
    """`value` with everything in place of its stand-in; dictionaries and lists stay the same objects."""
    if id(value) in seen:
        return seen[id(value)][1]
    # what is inside a deque may be a stand-in too, so its list is finished first
    if isinstance(value, (dict, list)):
        seen[id(value)] = (value, value)
        for key, item in list(value.items()) if isinstance(value, dict) else list(enumerate(value)):
            value[key] = _finish(item, seen)
    finished = value
    if id(value) in _unfinished:
        finished = _unfinished[id(value)][1]()
    elif type(value) is tuple:
        finished = tuple(_finish(item, seen) for item in value)
    seen[id(value)] = (value, finished)
    return finished
