"""Mixed precision, with Accelerate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from footplate import comm
from footplate.distributed.strategy import Strategy


class AcceleratedStrategy(Strategy):
    """Runs forward in autocast; with float16, scales the loss for backward, clipping and step."""

    def __init__(self, accelerator: Any, steps_in_backward: bool = False) -> None:
        self.accelerator = accelerator
        self.is_scaled = accelerator.mixed_precision == "fp16"
        self.steps_in_backward = steps_in_backward
        self.scaler = accelerator.scaler if self.is_scaled else None

    @property
    def step_was_skipped(self) -> bool:  # type: ignore[override]
        """Whether the scaler found an overflow and did not change the weights."""
        return self.is_scaled and bool(self.accelerator.optimizer_step_was_skipped)

    def prepare_model(self, model: nn.Module) -> nn.Module:
        """Make forward run in autocast and return its outputs in full precision."""
        if getattr(model.forward, "__wrapped__", None) is not None and hasattr(model, "_original_forward"):
            return model  # an earlier call has wrapped its forward already
        # "evaluation mode" leaves DDP out, which is footplate's own part
        prepared: nn.Module = self.accelerator.prepare_model(model, evaluation_mode=comm.world_size() > 1)
        return prepared

    def prepare_optimizer(self, optimizer: Optimizer) -> Optimizer:
        """Let the scaler unscale gradients and skip updates; bfloat16 needs no scaler."""
        if not self.is_scaled and not self.steps_in_backward:
            return optimizer
        prepared: Optimizer = self.accelerator.prepare_optimizer(optimizer)
        return prepared

    def backward(self, loss: torch.Tensor, **kwargs: Any) -> None:
        """Scale the loss if there is a scaler; LOMO updates the weights here and needs its learning rate."""
        if self.steps_in_backward:
            self.accelerator.backward(loss, **kwargs)
        else:
            super().backward(self.scaler.scale(loss) if self.is_scaled else loss, **kwargs)

    def clip_grad_norm(self, parameters: Iterable[nn.Parameter], max_norm: float | None) -> torch.Tensor:
        """Unscale the gradients before measuring and clipping."""
        if self.is_scaled:
            self.accelerator.unscale_gradients()
        return super().clip_grad_norm(parameters, max_norm)
