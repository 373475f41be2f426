"""Settings of today on a state of yesterday: a loaded optimizer brings its old options along."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

logger = logging.getLogger(__name__)

RATES = ("lr", "initial_lr")  # these move with the schedule


def read_options(optimizer: Optimizer) -> list[dict[str, Any]]:
    """The options of each parameter group, to be read before a state is loaded over them."""
    return [
        {name: value for name, value in group.items() if name != "params"} for group in _groups(optimizer)
    ]


def apply_options(optimizer: Optimizer, scheduler: Any, options: Sequence[dict[str, Any]]) -> None:
    """Give a loaded optimizer the options that the current settings made, its moments left alone."""
    groups = _groups(optimizer)
    for group, fresh in zip(groups, options, strict=True):
        group.update({name: value for name, value in fresh.items() if name not in RATES})
    if not isinstance(scheduler, LambdaLR):
        pairs = zip(groups, options, strict=True)
        if any(group.get("initial_lr") != fresh.get("initial_lr") for group, fresh in pairs):
            logger.warning(
                "The rates of %s are part of its state: a changed learning_rate does not reach them.",
                type(scheduler).__name__,
            )
        return
    rates = [_plain(fresh.get("initial_lr", fresh["lr"])) for fresh in options]
    scheduler.base_lrs = rates
    for group, rate in zip(groups, rates, strict=True):
        group["initial_lr"] = rate
    recompute_rates(scheduler)


def recompute_rates(scheduler: Any) -> None:
    """Set the rates of the next update from curve and position; a schedule without a curve keeps its own."""
    if not isinstance(scheduler, LambdaLR):
        return
    rates = [
        rate * curve(scheduler.last_epoch)
        for rate, curve in zip(scheduler.base_lrs, scheduler.lr_lambdas, strict=True)
    ]
    for group, rate in zip(_groups(scheduler.optimizer), rates, strict=True):
        if isinstance(group["lr"], torch.Tensor):  # a captured graph reads it: it must stay the same object
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
    scheduler._last_lr = rates


def _groups(optimizer: Optimizer) -> list[dict[str, Any]]:
    return optimizer.param_groups


def _plain(rate: float | torch.Tensor) -> float | torch.Tensor:
    return rate.clone() if isinstance(rate, torch.Tensor) else rate
