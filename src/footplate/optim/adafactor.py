"""Adafactor: Adam's second moment kept as a row and a column per matrix, and a rate of its own if wanted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

HALF_PRECISION = (torch.float16, torch.bfloat16)


class Adafactor(Optimizer):
    """Adaptive rates with memory that grows with the sides of a matrix instead of its area.

    Args:
        params: Parameters or parameter groups.
        lr: The rate, when `relative_step` is off.
        eps: What is added to the squared gradient, and the smallest size that a parameter is taken to have.
        clip_threshold: Updates whose root mean square is larger are scaled down to it.
        decay_rate: The exponent by which the memory of squared gradients grows longer.
        beta1: Share of the last update kept in the next; None keeps nothing and saves the memory.
        weight_decay: Share of a parameter, times the rate, taken off at each update.
        scale_parameter: Multiply the rate by the root mean square of the parameter.
        relative_step: Let the rate follow from the number of updates.
        warmup_init: Let that rate begin near 0.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | None = None,
        eps: tuple[float, float] = (1e-30, 1e-3),
        clip_threshold: float = 1.0,
        decay_rate: float = -0.8,
        beta1: float | None = None,
        weight_decay: float = 0.0,
        scale_parameter: bool = True,
        relative_step: bool = True,
        warmup_init: bool = False,
    ) -> None:
        if relative_step and lr is not None:
            raise ValueError(
                f"lr={lr} and relative_step=True exclude each other: pass lr=None or relative_step=False."
            )
        if warmup_init and not relative_step:
            raise ValueError(
                "warmup_init=True is a warm-up of the relative step: pass relative_step=True as well."
            )
        defaults = {
            "lr": lr,
            "eps": eps,
            "clip_threshold": clip_threshold,
            "decay_rate": decay_rate,
            "beta1": beta1,
            "weight_decay": weight_decay,
            "scale_parameter": scale_parameter,
            "relative_step": relative_step,
            "warmup_init": warmup_init,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient.

        Args:
            closure: Called first, outside autograd; its loss is what `step` returns.
        """
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update_parameter(parameter, group)
        return loss

    def _update_parameter(self, parameter: Tensor, group: dict[str, Any]) -> None:
        """One update of one parameter, computed in at least single precision."""
        if parameter.grad.is_sparse:  # type: ignore[union-attr]
            raise RuntimeError("Adafactor cannot use sparse gradients: set sparse=False on the embedding.")
        gradient, weights = _widen(parameter.grad), _widen(parameter)  # type: ignore[arg-type]
        state = self.state[parameter]
        _prepare_state(state, gradient, keeps_updates=group["beta1"] is not None)
        state["step"] += 1
        state["RMS"] = _root_mean_square(weights)
        rate = self._get_lr(group, state)

        update = _whiten(gradient, state, group["eps"][0], 1.0 - math.pow(state["step"], group["decay_rate"]))
        update.div_((_root_mean_square(update) / group["clip_threshold"]).clamp_(min=1.0))
        update.mul_(rate)
        if group["beta1"] is not None:
            update = state["exp_avg"].mul_(group["beta1"]).add_(update, alpha=1 - group["beta1"])
        if group["weight_decay"] != 0:
            weights.add_(weights, alpha=-group["weight_decay"] * rate)
        weights.sub_(update)
        if weights is not parameter:
            parameter.copy_(weights)

    @staticmethod
    def _get_lr(param_group: dict[str, Any], param_state: dict[str, Any]) -> Any:
        """The rate of one parameter's update."""
        rate = param_group["lr"]
        if param_group["relative_step"]:
            ceiling = 1e-6 * param_state["step"] if param_group["warmup_init"] else 1e-2
            rate = min(ceiling, 1.0 / math.sqrt(param_state["step"]))
        if param_group["scale_parameter"]:
            return max(param_group["eps"][1], param_state["RMS"]) * rate  # host sync
        return rate


def _widen(tensor: Tensor) -> Tensor:
    """The tensor itself, or a single-precision copy of a half-precision one."""
    return tensor.float() if tensor.dtype in HALF_PRECISION else tensor


def _root_mean_square(tensor: Tensor) -> Tensor:
    """The size of a typical element."""
    size: Tensor = tensor.norm(2) / (tensor.numel() ** 0.5)
    return size


def _prepare_state(state: dict[str, Any], gradient: Tensor, keeps_updates: bool) -> None:
    """Start a parameter's running averages, or bring restored ones to the gradient's device and type."""
    if not state:
        state["step"] = 0
        if keeps_updates:
            state["exp_avg"] = torch.zeros_like(gradient)
        if gradient.dim() >= 2:
            state["exp_avg_sq_row"] = gradient.new_zeros(gradient.shape[:-1])
            state["exp_avg_sq_col"] = gradient.new_zeros(gradient.shape[:-2] + gradient.shape[-1:])
        else:
            state["exp_avg_sq"] = torch.zeros_like(gradient)
        return
    for name, value in state.items():
        if name.startswith("exp_avg"):
            state[name] = value.to(gradient)


def _whiten(gradient: Tensor, state: dict[str, Any], eps: float, memory: float) -> Tensor:
    """The gradient divided by the running root mean square of its elements."""
    squared = gradient**2 + eps
    if gradient.dim() < 2:
        average: Tensor = state["exp_avg_sq"].mul_(memory).add_(squared, alpha=1.0 - memory)
        return average.rsqrt().mul_(gradient)
    rows = state["exp_avg_sq_row"].mul_(memory).add_(squared.mean(dim=-1), alpha=1.0 - memory)
    columns = state["exp_avg_sq_col"].mul_(memory).add_(squared.mean(dim=-2), alpha=1.0 - memory)
    row_factor = (rows / rows.mean(dim=-1, keepdim=True)).rsqrt_().unsqueeze(-1)
    return torch.mul(row_factor, columns.unsqueeze(-2).rsqrt()).mul_(gradient)


class AdafactorSchedule(LambdaLR):
    """Shows the rates that Adafactor gives itself, where a loop asks a schedule for them.

    Args:
        optimizer: An `Adafactor` with `relative_step=True`.
        initial_lr: What to show before the first update.
    """

    def __init__(self, optimizer: Optimizer, initial_lr: float = 0.0) -> None:
        for group in optimizer.param_groups:
            group["initial_lr"] = initial_lr
        super().__init__(optimizer, lambda _: initial_lr)
        for group in optimizer.param_groups:
            del group["initial_lr"]

    def get_lr(self) -> list[Any]:
        """The rate of each group's first parameter, or the initial one where that has no gradient."""
        optimizer: Any = self.optimizer
        rates = []
        for group, initial_rate in zip(optimizer.param_groups, self.base_lrs, strict=True):
            first = next(iter(group["params"]), None)
            if first is None or first.grad is None or not optimizer.state[first]:
                rates.append(initial_rate)
            else:
                rates.append(optimizer._get_lr(group, optimizer.state[first]))
        return rates


def get_adafactor_schedule(optimizer: Optimizer, initial_lr: float = 0.0) -> AdafactorSchedule:
    """A schedule that shows the rates Adafactor gives itself.

    Args:
        optimizer: An `Adafactor` with `relative_step=True`.
        initial_lr: What to show before the first update.
    """
    return AdafactorSchedule(optimizer, initial_lr)
