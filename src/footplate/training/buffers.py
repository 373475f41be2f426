"""What a model's forward changes besides its weights, such as running means: kept, to undo an update."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

# copied before anything is known of them, the small ones first: a larger one holds data or quantized weights,
# as a rule, and a copy of those might not fit
BYTES_AT_FIRST = 256 * 2**20


class BufferKeeper:
    """Copies the buffers before an update: after the first one only those that it has changed.

    Args:
        model: The model; without one there is nothing to keep.
    """

    def __init__(self, model: nn.Module | None = None) -> None:
        modules: list[Any] = [] if model is None else list(model.modules())
        self._places = [
            _Place(module._buffers, name)
            for module in modules
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        self._has_noted = self._is_sorted_out = False

    def note(self) -> None:
        """Keep the buffers as they are now."""
        if not self._places:
            return
        bytes_left = math.inf
        if self._has_noted and not self._is_sorted_out:
            # masks, tables of positions and the like are constants
            self._places = [place for place in self._places if place.has_changed()]
            self._is_sorted_out = True
        elif not self._is_sorted_out:
            self._places.sort(key=_Place.num_bytes)
            bytes_left = BYTES_AT_FIRST
        for place in self._places:
            bytes_left -= place.num_bytes()
            place.note(may_copy=bytes_left >= 0)
        self._has_noted = True

    def restore(self) -> None:
        """Set the buffers back to what they were at the last `note`."""
        for place in self._places:
            place.restore()
        if not self._is_sorted_out:  # the next note sees no change, whatever forward does
            self._has_noted = False


class _Place:
    """Where a module holds a buffer: a forward may put another tensor there, or take it away."""

    def __init__(self, buffers: Any, name: str) -> None:
        self._buffers, self._name = buffers, name
        self._is_noted = self._is_there = False
        self._tensor: torch.Tensor | None = None
        self._copy: torch.Tensor | None = None
        self._version = 0

    def num_bytes(self) -> int:
        """How much a copy of the buffer takes; 0 if it is not copied."""
        tensor = self._now()
        return tensor.nbytes if tensor is not None and can_be_copied(tensor) else 0

    def note(self, may_copy: bool) -> None:
        tensor = self._tensor = self._now()
        self._is_noted, self._is_there = True, self._name in self._buffers
        self._version = _version_of(tensor)
        if not may_copy or tensor is None or not can_be_copied(tensor):
            self._copy = None
        elif self._copy is None or not _is_alike(self._copy, tensor):
            self._copy = tensor.detach().clone()
        else:
            self._copy.copy_(tensor.detach())

    def has_changed(self) -> bool:
        """Whether the buffer is another than at the last `note`; torch counts no changes of running means."""
        now = self._now()
        if now is not self._tensor or _version_of(now) != self._version:
            return True
        return now is not None and self._copy is not None and not torch.equal(now, self._copy)

    def restore(self) -> None:
        if not self._is_noted:
            return
        if not self._is_there:
            if self._name in self._buffers:
                del self._buffers[self._name]
            return
        tensor, copy = self._tensor, self._copy
        if tensor is not None and copy is not None:
            if tensor.shape == copy.shape:
                tensor.detach().copy_(copy)
            else:  # it was resized
                tensor = copy.clone()
        if self._now() is not tensor or self._name not in self._buffers:
            self._buffers[self._name] = tensor

    def _now(self) -> torch.Tensor | None:
        try:
            return self._buffers[self._name]  # type: ignore[no-any-return]
        except KeyError:
            return None


def can_be_copied(tensor: torch.Tensor) -> bool:
    """Whether a tensor can be written to, and so be set back: others change by replacement only."""
    if is_lazy(tensor) or tensor.layout != torch.strided or tensor.is_meta or tensor.is_inference():
        return False
    repeats = any(step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True))
    return not repeats  # several places share one value, as `expand` makes it


def _version_of(tensor: torch.Tensor | None) -> int:
    """How often a tensor was written to, as far as torch counts it; -1 without values."""
    if tensor is None or is_lazy(tensor):
        return -1
    return 0 if tensor.is_inference() else tensor._version


def _is_alike(copy: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Whether a copy can take the values of a tensor."""
    return (copy.shape, copy.dtype, copy.device) == (tensor.shape, tensor.dtype, tensor.device)
