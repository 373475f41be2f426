"""Everything that a whole run may change, kept so that a rehearsal of it leaves no trace."""

from __future__ import annotations

import ctypes
import functools
import io
import logging
import math
import threading
from collections import deque
from collections.abc import Iterable
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from footplate.training.buffers import can_be_copied
from footplate.training.rehearsal import NUM_BYTES, CannotPutBack, Kept, is_users, write_back

NUM_OBJECTS = 500_000  # looked at; a model has a hundred for each of its modules
NUM_ITEMS = 1_000  # entries of a container that are looked at: a larger one holds data, not state
NUM_BYTES_IN_ALL = 256 * 2**20  # of arrays besides the model's that are copied; others are data

# of C, such as those that processes share
_MEMORY: Any = (ctypes.c_int.__mro__[1], ctypes.Array, ctypes.Structure)
_BETWEEN_PROCESSES = ("multiprocessing.connection", "multiprocessing.managers", "multiprocessing.queues")
_CONTAINERS = (dict, list, tuple, set, frozenset, deque, bytearray)
# of a library, and busy beside this thread: to set them back would break them
_LEFT_ALONE = (threading.Thread, threading.Event, threading.Condition, logging.Logger, logging.Handler)


class KeptObjects(Kept):
    """The state of a model, its optimizer, and of whatever the user's code refers to.

    Beyond `Kept`: parameters and buffers of any size, and what any optimizer holds, in host memory, with
    their gradients; files by their place; what classes of the user's own hold. A container with many entries
    is kept without a look at each of them. Of other large tensors only changes are noticed.

    Args:
        roots: Where to begin.
        weights: The tensors to copy whatever their size.
        without: Objects that somebody else keeps.
        weight_bytes: How much of the weights to copy; of others only changes are noticed.
        is_careful: Give up where an object may write to a file or is at work in another thread.
    """

    def __init__(
        self,
        roots: Iterable[Any],
        weights: Iterable[torch.Tensor],
        without: Iterable[Any] = (),
        weight_bytes: float = math.inf,
        is_careful: bool = False,
    ) -> None:
        self._is_careful = is_careful
        self._weights = {id(weight) for weight in weights}
        self._kept_weights: dict[int, torch.Tensor] = {}
        self._weight_bytes_left = weight_bytes
        self._skipped: dict[int, tuple[torch.Tensor, int]] = {}  # with their version
        self._bytes_left = NUM_BYTES_IN_ALL
        self._without = {id(value) for value in without}
        self._classes: set[type[Any]] = set()
        super().__init__(roots, NUM_OBJECTS)

    def _keep(self, value: Any) -> Iterable[Any]:
        if self._is_careful and (isinstance(value, (io.IOBase, threading.Thread)) or _is_shared(value)):
            raise CannotPutBack(f"it holds a {type(value).__name__}")
        if id(value) in self._without or isinstance(value, _LEFT_ALONE):
            return ()
        if isinstance(value, io.IOBase):
            self._keep_file(value)
            return ()
        if isinstance(value, _MEMORY) and not isinstance(value, ctypes.py_object):
            self._restores.append(functools.partial(_write_memory, value, bytes(value)))
            return ()
        if isinstance(value, _CONTAINERS) and len(value) > NUM_ITEMS:
            if len(value) <= NUM_OBJECTS:
                super()._keep(value)
            return ()
        for weight in _tensors_of(value):  # a teacher, a critic and their optimizers too
            self._keep_weight(weight)
        return [*super()._keep(value), *self._keep_class(type(value))]

    def find_changed(self) -> list[torch.Tensor]:
        """The tensors that were too large to copy, and have been written to."""
        others = [pair for key, pair in self._skipped.items() if key not in self._kept_weights]
        return [tensor for tensor, version in others if tensor._version != version]

    def _keep_array(self, value: Any) -> None:
        if id(value) in self._weights or isinstance(value, nn.Parameter):
            self._keep_weight(value)
        elif id(value) in self._kept_weights:
            return
        elif isinstance(value, torch.Tensor) and not can_be_copied(value):
            self._watch(value)
        elif value.nbytes <= min(NUM_BYTES, self._bytes_left):
            self._bytes_left -= value.nbytes
            super()._keep_array(value)
        elif isinstance(value, torch.Tensor):
            self._watch(value)

    def _watch(self, tensor: torch.Tensor) -> None:
        """Notice when a tensor is written to that is not copied."""
        if not is_lazy(tensor) and not tensor.is_inference():  # such a one has no version
            self._skipped[id(tensor)] = tensor, tensor._version

    def _keep_weight(self, weight: torch.Tensor) -> None:
        """Copy a weight to where it does not take the memory that the rehearsal is to measure."""
        has_values = not weight.is_meta and not is_lazy(weight)
        if self._is_careful and not has_values:
            raise CannotPutBack("a weight has no values yet")
        if not has_values or id(weight) in self._kept_weights:
            return
        if not can_be_copied(weight) or weight.nbytes > self._weight_bytes_left:
            self._watch(weight)
            return
        self._weight_bytes_left -= weight.nbytes
        self._kept_weights[id(weight)] = weight
        copied = weight.detach().to("cpu", copy=True)
        gradient, wants_gradient = weight.grad if weight.is_leaf else None, weight.requires_grad
        slopes = None if gradient is None else gradient.detach().to("cpu", copy=True)

        def restore() -> None:
            write_back(weight, copied)
            if not weight.is_leaf:
                return
            weight.requires_grad_(wants_gradient)
            weight.grad = gradient
            if gradient is not None and slopes is not None:
                gradient.detach().copy_(slopes)

        self._restores.append(restore)

    def _keep_file(self, file: io.IOBase) -> None:
        """Note the place in an open file."""
        if not file.closed and file.seekable():
            self._restores.append(functools.partial(file.seek, file.tell()))

    def _keep_class(self, kind: type[Any]) -> list[Any]:
        """Note what a class of the user's own holds, and return that and its functions."""
        found: list[Any] = []
        for base in kind.__mro__:
            if base in self._classes:
                break
            self._classes.add(base)
            before = set(vars(base))
            functions = [function for value in vars(base).values() for function in _functions_of(value)]
            if not any(
                is_users(one.__code__) and one.__code__.co_filename != "<string>" for one in functions
            ):
                continue
            found += functions
            self._restores.append(functools.partial(_take_away, base, before))
            for name, value in vars(base).items():
                if not name.startswith("__") and not hasattr(type(value), "__get__"):
                    self._restores.append(functools.partial(_set_back, base, name, value))
                    found.append(value)
        return found


def _tensors_of(value: Any) -> list[torch.Tensor]:
    """What a module itself or an optimizer holds."""
    held: list[Any] = []
    if isinstance(value, nn.Module):
        held = [vars(value).get("_parameters", {}), vars(value).get("_buffers", {})]
    elif isinstance(value, torch.optim.Optimizer):
        held = [state for state in getattr(value, "state", {}).values() if isinstance(state, dict)]
    return [entry for part in held for entry in part.values() if isinstance(entry, torch.Tensor)]


def _functions_of(value: Any) -> list[FunctionType]:
    """The functions behind an entry of a class."""
    parts = (value, getattr(value, "__func__", None), getattr(value, "fget", None))
    return [part for part in parts if isinstance(part, FunctionType)]


def _set_back(kind: type[Any], name: str, value: Any) -> None:
    """Give a class its former attribute, unless it has it still."""
    if vars(kind).get(name) is not value:
        setattr(kind, name, value)


def _take_away(kind: type[Any], before: set[str]) -> None:
    """Remove the attributes that a class did not have before."""
    for name in set(vars(kind)) - before:
        if not name.startswith("__"):
            delattr(kind, name)


def _write_memory(value: Any, old: bytes) -> None:
    """Give a number or an array of C its former bytes, unless it has them still."""
    if bytes(value) != old:
        ctypes.memmove(ctypes.addressof(value), old, len(old))


def _is_shared(value: Any) -> bool:
    """Whether other processes hold the state of an object, or take from it."""
    return type(value).__module__ in _BETWEEN_PROCESSES


def weights_of(model: nn.Module, optimizer: Any) -> list[torch.Tensor]:
    """The tensors of a model, and those that an optimizer holds for it."""
    found = [*model.parameters(), *model.buffers()]
    states = getattr(getattr(optimizer, "optimizer", optimizer), "state", {})
    for state in states.values():
        found += [value for value in state.values() if isinstance(value, torch.Tensor)]
    return found


def describe_arrays(state: Any) -> dict[str, int]:
    """A checksum of each tensor and value of nested states, by its path."""
    import zlib  # with what hashes checkpoints; a plain start has no use for it

    found: dict[str, int] = {}
    remaining: list[tuple[str, Any]] = [("", state)]
    while remaining:
        path, value = remaining.pop()
        if isinstance(value, dict):
            remaining += [(f"{path}.{key}" if path else str(key), entry) for key, entry in value.items()]
        elif isinstance(value, (list, tuple)):
            remaining += [(f"{path}[{index}]", entry) for index, entry in enumerate(value)]
        elif isinstance(value, (torch.Tensor, np.ndarray)):
            found[path] = zlib.crc32(_bytes_of(value))
        else:  # another object may show its address
            is_plain = value is None or isinstance(value, (bool, int, float, complex, str, bytes, np.generic))
            found[path] = zlib.crc32(
                (repr(value) if is_plain else type(value).__name__).encode("utf-8", "replace")
            )
    return found


def _bytes_of(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        return value.tobytes()
    flat = value.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
