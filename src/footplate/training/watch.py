"""What callbacks and metrics can see of a training step, and how long it is kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from footplate.comm import nested_detach, nested_join, nested_numpify, sum_integers
from footplate.outputs import EvalPrediction


class StepData:
    """Inputs, outputs and loss of the last micro-batch, in the dictionary that callbacks get."""

    def __init__(self, shared: dict[str, Any]) -> None:
        self._shared = shared
        self.release()

    def keep(self, inputs: Any, outputs: Any, loss: torch.Tensor) -> None:
        """Hold them until the events of this step are over."""
        self._shared.update(inputs=inputs, outputs=outputs, loss=loss.detach())

    def release(self) -> None:
        """Free them: the next forward needs their memory."""
        self._shared.update(inputs=None, outputs=None, loss=None)


class TrainWindow:
    """Logits and labels of the last training batches, so that metrics need no second forward."""

    def __init__(self, num_batches: int) -> None:
        self.num_batches = num_batches
        self._batches: deque[tuple[Any, Any]] = deque(maxlen=max(num_batches, 1))

    def add(self, logits: Any, labels: Any) -> None:
        """Add a batch; the oldest one is dropped if the window is full."""
        if logits is not None and labels is not None:
            self._batches.append((nested_detach(logits), nested_detach(labels)))

    def contents(self) -> list[tuple[Any, Any]]:
        """The batches in the window, for `replace`."""
        return list(self._batches)

    def replace(self, contents: list[tuple[Any, Any]]) -> None:
        """Restore what `contents` returned."""
        self._batches = deque(contents, maxlen=self._batches.maxlen)

    def compute(self, compute_metrics: Callable[..., dict[str, Any]] | None) -> dict[str, Any]:
        """The metrics of the batches in the window."""
        if not self._batches or compute_metrics is None:
            return {}
        logits, labels = (
            nested_join([nested_numpify(part) for part in parts])
            for parts in zip(*self._batches, strict=True)
        )
        return compute_metrics(EvalPrediction(logits, labels))


def accepts_update(policy: str, grad_norm: torch.Tensor, update_loss: torch.Tensor, update: int) -> bool:
    """Whether an update may change the weights; raises if it is not finite and the policy is "raise"."""
    is_finite = bool(torch.isfinite(grad_norm) & torch.isfinite(update_loss))  # host sync
    if sum_integers([int(not is_finite)])[0] == 0:  # losses differ from rank to rank
        return True
    if policy == "skip":
        return False
    raise FloatingPointError(
        f"Update {update} has loss {float(update_loss)} and gradient norm {float(grad_norm)}. The weights "
        "are as they were before it. Look at its data and at the learning rate, or set on_nonfinite='skip' "
        "to leave such updates out."
    )
