"""The verbs the loop needs of the hardware, and their plain meaning: one process, one device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

_NOTHING: AbstractContextManager[None] = nullcontext()


class Strategy:
    """One process in full precision. Subclasses change what their hardware or precision asks for."""

    is_scaled = False  # a loss scaler watches for overflow and refuses such updates by itself
    step_was_skipped = False  # set where it refused the last one
    scaler: Any = None  # the scaler itself, whose state belongs into a checkpoint

    def prepare_model(self, model: nn.Module) -> nn.Module:
        """The model as forward and backward shall use it; its weights stay those of `model`."""
        return model

    def prepare_optimizer(self, optimizer: Optimizer) -> Optimizer:
        """The optimizer as the loop shall step it."""
        return optimizer

    def accumulate(self, model: nn.Module, sync: bool) -> AbstractContextManager[Any]:
        """Context of one micro-batch; only the last of an update synchronises gradients."""
        return _NOTHING

    def backward(self, loss: torch.Tensor, **kwargs: Any) -> None:
        """Add the gradients of `loss`."""
        loss.backward(**kwargs)  # type: ignore[no-untyped-call]

    def clip_grad_norm(self, parameters: Iterable[nn.Parameter], max_norm: float | None) -> torch.Tensor:
        """The norm of all gradients before clipping; `max_norm` of None, 0 or less measures only."""
        max_norm = max_norm or 0.0
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if len({(type(grad), grad.dtype, grad.device, grad.layout) for grad in gradients}) != 1:
            return _clip_mixed(gradients, max_norm)
        with torch.no_grad():
            # the bits of torch's clip_grad_norm_, in half its time: it sorts the tensors by kind first
            norm: torch.Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
            if max_norm > 0:
                torch._foreach_mul_(gradients, torch.clamp(max_norm / (norm + 1e-6), max=1.0))
        return norm


def _clip_mixed(gradients: list[torch.Tensor], max_norm: float) -> torch.Tensor:
    """Clip gradients of several dtypes, devices or layouts, or none at all."""
    norm = get_total_norm(gradients)
    if max_norm > 0:
        factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
        for gradient in gradients:
            gradient.detach().mul_(factor.to(gradient.device))
    return norm


def build_strategy(args: TrainingArguments, build_accelerator: Callable[[], Any]) -> Strategy:
    """The strategy that precision, optimizer and number of processes ask for."""
    world_size = args.world_size
    if world_size > 1:
        raise ValueError(
            f"The launcher started {world_size} processes, and this version of footplate trains in one. "
            "Start the script with `python`, without torchrun or accelerate launch."
        )
    steps_in_backward = args.optim in ("lomo", "adalomo")
    if args.mixed_precision == "no" and not steps_in_backward:
        return Strategy()
    from footplate.distributed.accelerated import AcceleratedStrategy

    return AcceleratedStrategy(build_accelerator(), steps_in_backward)
