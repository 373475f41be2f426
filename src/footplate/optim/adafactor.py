"""Adafactor: stores Adam's second moment as a row and a column per matrix, and can choose its own rate."""

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
    """Adaptive rates; memory grows with rows plus columns of a matrix, not with rows times columns.

    Args:
        params: Parameters or parameter groups.
        lr: The rate, if `relative_step` is False.
        eps: The number added to the squared gradient, and the lowest scale of a parameter.
        clip_threshold: An update with a larger root mean square is scaled down to this.
        decay_rate: The exponent of the update's number in the decay of the averages of squared gradients.
        beta1: Decay of the average of updates; None averages no updates and saves that memory.
        weight_decay: Share of a parameter, times the rate, to subtract at each update.
        scale_parameter: Multiply the rate by the root mean square of the parameter.
        relative_step: Compute the rate from the number of updates.
        warmup_init: Start that rate near 0.
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
                f"lr={lr} and relative_step=True exclude each other. Pass lr=None or relative_step=False."
            )
        if warmup_init and not relative_step:
            raise ValueError(
                "warmup_init=True has a meaning only with relative_step=True. Set both, or neither."
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
            closure: Called first, without autograd; `step` returns its loss.
        """
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update_parameter(parameter, group)
        return loss

    def _update_parameter(self, parameter: Tensor, group: dict[str, Any]) -> None:
        """Update one parameter; half precision is computed in single precision."""
        if parameter.grad.is_sparse:  # type: ignore[union-attr]
            raise RuntimeError("Adafactor cannot use sparse gradients. Set sparse=False on the embedding.")
        gradient = _to_single_precision(parameter.grad)  # type: ignore[arg-type]
        weights = _to_single_precision(parameter)
        state = self.state[parameter]
        _prepare_state(state, gradient, keeps_updates=group["beta1"] is not None)
        state["step"] += 1
        state["RMS"] = _root_mean_square(weights)
        rate = self._get_lr(group, state)

        decay = 1.0 - math.pow(state["step"], group["decay_rate"])
        update = _divide_by_average(gradient, state, group["eps"][0], decay)
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


def _to_single_precision(tensor: Tensor) -> Tensor:
    """`tensor`, or a single-precision copy if it is in half precision."""
    return tensor.float() if tensor.dtype in HALF_PRECISION else tensor


def _root_mean_square(tensor: Tensor) -> Tensor:
    """The root mean square of the elements."""
    size: Tensor = tensor.norm(2) / (tensor.numel() ** 0.5)
    return size


def _prepare_state(state: dict[str, Any], gradient: Tensor, keeps_updates: bool) -> None:
    """Create the averages of a parameter, or move loaded ones to the gradient's device and type."""
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


def _divide_by_average(gradient: Tensor, state: dict[str, Any], eps: float, decay: float) -> Tensor:
    """The gradient divided by the running root mean square of its elements."""
    squared = gradient**2 + eps
    if gradient.dim() < 2:
        average: Tensor = state["exp_avg_sq"].mul_(decay).add_(squared, alpha=1.0 - decay)
        return average.rsqrt().mul_(gradient)
    rows = state["exp_avg_sq_row"].mul_(decay).add_(squared.mean(dim=-1), alpha=1.0 - decay)
    columns = state["exp_avg_sq_col"].mul_(decay).add_(squared.mean(dim=-2), alpha=1.0 - decay)
    row_factor = (rows / rows.mean(dim=-1, keepdim=True)).rsqrt_().unsqueeze(-1)
    return torch.mul(row_factor, columns.unsqueeze(-2).rsqrt()).mul_(gradient)


class AdafactorSchedule(LambdaLR):
    """Reports the rates that Adafactor computes, for a loop that asks its schedule for them.

    Args:
        optimizer: An `Adafactor` with `relative_step=True`.
        initial_lr: The rate to report before the first update.
    """

    def __init__(self, optimizer: Optimizer, initial_lr: float = 0.0) -> None:
        for group in optimizer.param_groups:
            group["initial_lr"] = initial_lr
        super().__init__(optimizer, lambda _: initial_lr)
        for group in optimizer.param_groups:
            del group["initial_lr"]

    def get_lr(self) -> list[Any]:
        """The rate of each group's first parameter; the initial rate if that parameter has no gradient."""
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
    """A schedule that reports the rates that Adafactor computes.

    Args:
        optimizer: An `Adafactor` with `relative_step=True`.
        initial_lr: The rate to report before the first update.
    """
    return AdafactorSchedule(optimizer, initial_lr)
