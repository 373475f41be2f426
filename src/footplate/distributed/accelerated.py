"""Mixed precision, by way of Accelerate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from footplate.distributed.strategy import Strategy


class AcceleratedStrategy(Strategy):
    """Forward in autocast; with float16 also a loss scaler around backward, clip and step."""

    def __init__(self, accelerator: Any, steps_in_backward: bool = False) -> None:
        self.accelerator = accelerator
        self.is_scaled = accelerator.mixed_precision == "fp16"
        self.steps_in_backward = steps_in_backward
        self.scaler = accelerator.scaler if self.is_scaled else None

    @property
    def step_was_skipped(self) -> bool:  # type: ignore[override]
        """Whether the scaler found an overflow and left the weights alone."""
        return self.is_scaled and bool(self.accelerator.optimizer_step_was_skipped)

    def prepare_model(self, model: nn.Module) -> nn.Module:
        """Run forward in autocast and give its outputs in full precision."""
        if getattr(model.forward, "__wrapped__", None) is not None and hasattr(model, "_original_forward"):
            return model  # already done by an earlier call
        prepared: nn.Module = self.accelerator.prepare_model(model)
        return prepared

    def prepare_optimizer(self, optimizer: Optimizer) -> Optimizer:
        """Let the scaler unscale and refuse updates; bfloat16 needs no scaler."""
        if not self.is_scaled and not self.steps_in_backward:
            return optimizer
        prepared: Optimizer = self.accelerator.prepare_optimizer(optimizer)
        return prepared

    def backward(self, loss: torch.Tensor, **kwargs: Any) -> None:
        """Scale where there is a scaler; LOMO steps in here and must be told its rate."""
        if self.steps_in_backward:
            self.accelerator.backward(loss, **kwargs)
        elif self.is_scaled:
            super().backward(self.accelerator.scaler.scale(loss), **kwargs)
        else:
            super().backward(loss, **kwargs)

    def clip_grad_norm(self, parameters: Iterable[nn.Parameter], max_norm: float | None) -> torch.Tensor:
        """Unscale before measuring."""
        if self.is_scaled:
            self.accelerator.unscale_gradients()
        return super().clip_grad_norm(parameters, max_norm)
