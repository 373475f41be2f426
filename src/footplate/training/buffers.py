"""What a model's forward changes besides its weights, such as running means: kept, to undo an update."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class BufferKeeper:
    """Copies the buffers before an update: after the first one only those that it has changed.

    Args:
        model: The model; without one there is nothing to keep.
    """

    def __init__(self, model: nn.Module | None = None) -> None:
        modules: list[Any] = [] if model is None else list(model.modules())
        # by owner and name: a forward may put another tensor in the place of a buffer
        self._owners: list[tuple[dict[str, Any], str]] = [
            (module._buffers, name)
            for module in modules
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        self._copies: list[torch.Tensor] | None = None
        self._is_sorted_out = False

    def note(self) -> None:
        """Keep the buffers as they are now."""
        if not self._owners:
            return
        if self._copies is None:
            self._copies = [tensor.detach().clone() for tensor in self._tensors()]
            return
        if not self._is_sorted_out:
            self._leave_out_constants()
        if self._owners:
            self._copies = _copy_into(self._copies, self._tensors())

    def restore(self) -> None:
        """Set the buffers back to what they were at the last `note`."""
        if self._copies is None:
            return
        for (buffers, name), copy in zip(self._owners, self._copies, strict=True):
            buffers[name] = _copy_into([buffers[name]], [copy])[0]

    def _tensors(self) -> list[torch.Tensor]:
        return [buffers[name] for buffers, name in self._owners]

    def _leave_out_constants(self) -> None:
        """Forget masks, tables of positions and the like; torch counts no changes of running means."""
        assert self._copies is not None
        kept = zip(self._owners, self._tensors(), self._copies, strict=True)
        changed = [(owner, copy) for owner, tensor, copy in kept if not torch.equal(tensor, copy)]
        self._owners, self._copies = [owner for owner, _ in changed], [copy for _, copy in changed]
        self._is_sorted_out = True


def _copy_into(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> list[torch.Tensor]:
    """The targets with the values of the sources, or new tensors where the shapes differ."""
    with torch.no_grad():
        return [
            target.copy_(source) if target.shape == source.shape else source.detach().clone()
            for target, source in zip(targets, sources, strict=True)
        ]
