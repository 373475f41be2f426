"""The finite ones among the losses since the last log: looked at only if their sum is not finite."""

from __future__ import annotations

import math

import torch

_MAX_KEPT = 256  # losses to keep before they are reduced to a sum and a count on the device


def stack_scalars(values: list[torch.Tensor]) -> torch.Tensor:
    """Values of one element in one tensor, without their graphs."""
    try:
        return torch.stack(values).detach()
    except RuntimeError:  # of several shapes or devices
        return torch.stack([value.detach().reshape(()).to(values[0].device) for value in values])


class FiniteLosses:
    """Keeps the losses of micro-batches on the device, so that a mean can leave out NaN and infinity."""

    def __init__(self) -> None:
        self._losses: list[torch.Tensor] = []
        self._sums: torch.Tensor | None = None  # of the finite ones, how many they are, and of how many
        self._num_before = 0

    def add(self, loss: torch.Tensor) -> None:
        """Keep the loss of a micro-batch."""
        self._losses.append(loss)

    def begin_update(self) -> None:
        """Note what was there before an update, which may be undone."""
        if len(self._losses) >= _MAX_KEPT:
            self._fold()
        self._num_before = len(self._losses)

    def undo_update(self) -> None:
        """Forget the losses of the current update."""
        del self._losses[self._num_before :]

    def drain(self, total: float) -> float:
        """The sum of all losses as if those that are not finite were the mean of the others; start anew.

        Args:
            total: Their plain sum, which is returned if it is finite, or if none of them is.
        """
        found = [0.0, 0.0, 0.0] if math.isfinite(total) else self.totals()
        self._losses.clear()
        self._sums, self._num_before = None, 0
        finite_sum, num_finite, num_losses = found
        return finite_sum / num_finite * num_losses if num_finite else total

    def totals(self) -> list[float]:
        """The sum of the finite losses, their number, and the number of all; read from the device."""
        self._fold()
        return [0.0, 0.0, 0.0] if self._sums is None else self._sums.tolist()  # host sync

    def restore(self, totals: list[float], device: torch.device) -> None:
        """Continue from what `totals` returned."""
        dtype = torch.float64 if device.type != "mps" else torch.float32
        self._sums = torch.tensor(totals, dtype=dtype, device=device) if totals[2] else None

    def _fold(self) -> None:
        if not self._losses:
            return
        values = stack_scalars(self._losses)
        values = values if values.device.type == "mps" else values.double()
        is_finite = values.isfinite()
        sums = torch.stack(
            [
                values.where(is_finite, torch.zeros_like(values)).sum(),
                is_finite.sum().to(values),
                torch.ones_like(values).sum(),
            ]
        )
        self._sums = sums if self._sums is None else self._sums + sums
        self._losses.clear()
        self._num_before = 0
