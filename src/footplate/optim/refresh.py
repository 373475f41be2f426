"""Re-apply changed settings after loading an optimizer state, which contains the old settings."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from footplate.optim.curves import set_rate

logger = logging.getLogger(__name__)

RATES = ("lr", "initial_lr")  # the schedule sets these


def read_options(optimizer: Optimizer) -> list[dict[str, Any]]:
    """The options of each parameter group; read them before loading a state replaces them."""
    groups = optimizer.param_groups
    return [{name: value for name, value in group.items() if name != "params"} for group in groups]


def apply_options(optimizer: Optimizer, scheduler: Any, options: Sequence[dict[str, Any]]) -> None:
    """Set the options of the current settings on a loaded optimizer; its moments stay as they are."""
    groups = optimizer.param_groups
    for group, fresh in zip(groups, options, strict=True):
        group.update({name: value for name, value in fresh.items() if name not in RATES})
    if not isinstance(scheduler, LambdaLR):
        pairs = zip(groups, options, strict=True)
        if any(group.get("initial_lr") != fresh.get("initial_lr") for group, fresh in pairs):
            logger.warning(
                "A changed learning_rate has no effect: %s keeps its rates in its state, which was loaded.",
                type(scheduler).__name__,
            )
        return
    rates = [fresh.get("initial_lr", fresh["lr"]) for fresh in options]
    # a copy of a tensor: the optimizer's own is changed in place at each update
    rates = [rate.clone() if isinstance(rate, torch.Tensor) else rate for rate in rates]
    scheduler.base_lrs = rates
    for group, rate in zip(groups, rates, strict=True):
        group["initial_lr"] = rate
    recompute_rates(scheduler)


def recompute_rates(scheduler: Any) -> None:
    """Compute the rates of the next update from the curve; a schedule without a curve keeps its rates."""
    if not isinstance(scheduler, LambdaLR):
        return
    rates = [
        rate * curve(scheduler.last_epoch)
        for rate, curve in zip(scheduler.base_lrs, scheduler.lr_lambdas, strict=True)
    ]
    for group, rate in zip(scheduler.optimizer.param_groups, rates, strict=True):
        set_rate(group, rate)
    scheduler._last_lr = rates
