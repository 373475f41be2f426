"""Count the memory of tensors from their first use to their end, while operations run."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

WEIGHT, INPUT, ACTIVATION, COPY, GRADIENT = "weight", "input", "activation", "copy", "gradient"
_TO_COPY = torch.ops.aten._to_copy.default  # what autocast turns a weight into another precision with


class Moment(NamedTuple):
    """The bytes that are alive at one time."""

    activations: int = 0  # and temporary results
    copies: int = 0  # of weights, in the precision of autocast
    gradients: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)


class Peaks(NamedTuple):
    """The highest moments of one part of a step."""

    by_total: Moment = Moment()
    by_activations: Moment = Moment()  # activations and copies: gradients may be kept elsewhere

    def with_moment(self, now: Moment) -> Peaks:
        """The peaks, if this moment is one of them too."""
        is_higher = (
            now.activations + now.copies > self.by_activations.activations + self.by_activations.copies
        )
        return Peaks(
            now if now.total > self.by_total.total else self.by_total,
            now if is_higher else self.by_activations,
        )


class Largest(NamedTuple):
    """The largest result of one operation."""

    num_bytes: int = 0
    shape: tuple[int, ...] = ()
    dtype: str = ""


Place = tuple[str, int | None]  # forward or backward, and the unit of the model, None outside all of them


class MemoryMeter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts allocations of all operations in its block; works for real and for fake tensors.

    Args:
        weights: Tensors that exist before: not counted, and their copies are told from activations.
        inputs: Others that exist before and are not counted.
    """

    def __init__(self, weights: Iterable[torch.Tensor] = (), inputs: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.place: Place = ("forward", None)
        self.peaks: dict[Place, Peaks] = {}
        self.largest = Largest()
        self._live = dict.fromkeys((WEIGHT, INPUT, ACTIVATION, COPY, GRADIENT), 0)
        self._entries: dict[int, tuple[Any, int, str]] = {}  # by the address of the storage object
        for tensor in weights:
            self._note(tensor, WEIGHT)
        for tensor in inputs:
            self._note(tensor, INPUT)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        kind = COPY if func is _TO_COPY and self._kind_of(args[0]) == WEIGHT else ACTIVATION
        for leaf in tree_iter(result):
            if isinstance(leaf, torch.Tensor):
                self._note(leaf, kind)
        now = self.now()
        self.peaks[self.place] = self.peaks.get(self.place, Peaks()).with_moment(now)
        return result

    def now(self) -> Moment:
        """What is alive now."""
        return Moment(self._live[ACTIVATION], self._live[COPY], self._live[GRADIENT])

    def mark_gradient(self, parameter: torch.Tensor) -> None:
        """Count the gradient of a parameter, which an operation made, as a gradient from now on."""
        if parameter.grad is None:
            return
        key = parameter.grad.untyped_storage()._cdata
        if key in self._entries and self._entries[key][2] == ACTIVATION:
            reference, num_bytes, _ = self._entries[key]
            self._entries[key] = (reference, num_bytes, GRADIENT)
            self._live[ACTIVATION] -= num_bytes
            self._live[GRADIENT] += num_bytes

    def _kind_of(self, tensor: torch.Tensor) -> str | None:
        entry = self._entries.get(tensor.untyped_storage()._cdata)
        return entry[2] if entry is not None else None

    def _note(self, tensor: torch.Tensor, kind: str) -> None:
        if tensor.layout is not torch.strided:
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._entries:
            return
        num_bytes = storage.nbytes()
        # the storage object lives as long as its memory, so its end is the end of the memory
        self._entries[key] = (weakref.ref(storage, lambda _: self._forget(key)), num_bytes, kind)
        self._live[kind] += num_bytes
        is_forward = self.place[0] == "forward"  # later results may be gradients
        if kind == ACTIVATION and is_forward and num_bytes > self.largest.num_bytes:
            dtype = str(tensor.dtype).removeprefix("torch.")
            self.largest = Largest(num_bytes, tuple(tensor.shape), dtype)

    def _forget(self, key: int) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._live[entry[2]] -= entry[1]
