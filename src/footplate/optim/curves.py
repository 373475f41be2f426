"""The learning-rate curves, which give a factor for an update's number, and the schedule that follows one."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR


class CurveLR(LambdaLR):
    """A `LambdaLR` of one curve for all groups, with the same values and state and a shorter `step`."""

    def step(self, epoch: int | None = None) -> None:
        """Move every group to the rate of the next update."""
        # the first two steps go through torch, which checks there that the optimizer stepped first
        if epoch is not None or self._step_count < 2:
            super().step(epoch)
            return
        self._step_count += 1
        self.last_epoch += 1
        factor = self.lr_lambdas[0](self.last_epoch)
        rates = [rate * factor for rate in self.base_lrs]
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            if type(group["lr"]) is float:  # far cheaper than the isinstance in set_rate
                group["lr"] = rate
            else:
                set_rate(group, rate)
        self._last_lr = rates


def set_rate(group: dict[str, Any], rate: float | torch.Tensor) -> None:
    """Set a parameter group's rate; a tensor stays the same object, because a captured graph reads it."""
    if isinstance(group["lr"], torch.Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


# Do not reorder the floating-point operations: the last bit of a rate would change, and losses with it.
# `step` comes last, so that `functools.partial` can bind the settings before it. A schedule saves nothing
# of a partial, as in the API; an object of a class would add to the saved state.


def warm_up(num_warmup_steps: int, step: int) -> float:
    """A straight line from 0 to 1."""
    return step / max(1, num_warmup_steps)


def constant(step: int) -> float:
    """Always 1."""
    return 1


def constant_after_warmup(num_warmup_steps: int, step: int) -> float:
    """Warm up, then stay at 1."""
    return warm_up(num_warmup_steps, step) if step < num_warmup_steps else 1.0


def linear(num_warmup_steps: int, num_training_steps: int, step: int) -> float:
    """Warm up, then fall in a straight line to 0."""
    if step < num_warmup_steps:
        return warm_up(num_warmup_steps, step)
    return max(0.0, (num_training_steps - step) / max(1, num_training_steps - num_warmup_steps))


def cosine(
    num_warmup_steps: int, num_training_steps: int, num_cycles: float, min_lr_rate: float, step: int
) -> float:
    """Warm up, then follow `num_cycles` waves of a cosine between 1 and `min_lr_rate`."""
    if step < num_warmup_steps:
        return warm_up(num_warmup_steps, step)
    progress = (step - num_warmup_steps) / max(1, num_training_steps - num_warmup_steps)
    wave = 0.5 * (1.0 + math.cos(math.pi * num_cycles * 2.0 * progress))
    return max(0, wave * (1 - min_lr_rate) + min_lr_rate)


def cosine_with_restarts(
    num_warmup_steps: int, num_training_steps: int, num_cycles: float, step: int
) -> float:
    """Warm up, then fall `num_cycles` times along a half cosine, jumping back to 1 in between."""
    if step < num_warmup_steps:
        return warm_up(num_warmup_steps, step)
    progress = (step - num_warmup_steps) / max(1, num_training_steps - num_warmup_steps)
    if progress >= 1.0:
        return 0.0
    return max(0.0, 0.5 * (1.0 + math.cos(math.pi * ((num_cycles * progress) % 1.0))))


def cosine_from_first_update(
    num_warmup_steps: int,
    num_training_steps: int,
    num_cycles: float,
    min_lr_rate: float,
    warmup_lr_rate: float | None,
    step: int,
) -> float:
    """Like `cosine`, but one update ahead, so that the first update already has a rate above 0."""
    if step < num_warmup_steps:
        if warmup_lr_rate is None:
            return (step + 1.0) / max(1.0, num_warmup_steps)
        return warmup_lr_rate + (1.0 - warmup_lr_rate) * step / max(1, num_warmup_steps - 1)
    progress = (step - num_warmup_steps + 1.0) / max(1.0, num_training_steps - num_warmup_steps)
    wave = 0.5 * (1.0 + math.cos(math.pi * num_cycles * 2.0 * progress))
    return max(0, wave * (1 - min_lr_rate) + min_lr_rate)


def polynomial(
    num_warmup_steps: int, num_training_steps: int, lr_end: float, power: float, lr_init: float, step: int
) -> float:
    """Warm up, then fall to `lr_end` along a polynomial of degree `power`."""
    if step < num_warmup_steps:
        return warm_up(num_warmup_steps, step)
    num_decay_steps = num_training_steps - num_warmup_steps
    # a run of warm-up alone has no updates to decay over: without this check it would divide by 0
    if step > num_training_steps or num_decay_steps <= 0:
        return lr_end / lr_init
    remaining: float = 1 - (step - num_warmup_steps) / num_decay_steps
    factor: float = ((lr_init - lr_end) * remaining**power + lr_end) / lr_init
    return factor


def inverse_sqrt(num_warmup_steps: int, timescale: int, step: int) -> float:
    """Warm up, then fall with the inverse square root of the update's number."""
    if step < num_warmup_steps:
        return warm_up(num_warmup_steps, step)
    return 1.0 / math.sqrt((step + (timescale - num_warmup_steps)) / timescale)


def warmup_stable_decay(
    num_warmup_steps: int,
    num_stable_steps: int,
    num_decay_steps: int,
    warmup_type: str,
    decay_type: str,
    min_lr_ratio: float,
    num_cycles: float,
    step: int,
) -> float:
    """Rise from `min_lr_ratio`, stay at 1, fall back to `min_lr_ratio`."""
    steps_into_decay = step - num_warmup_steps - num_stable_steps
    if step < num_warmup_steps:
        factor = _rise(warm_up(num_warmup_steps, step), warmup_type)
    elif steps_into_decay < 0:
        return 1.0
    elif steps_into_decay < num_decay_steps:
        factor = _fall(steps_into_decay / max(1, num_decay_steps), decay_type, num_cycles)
    else:
        return min_lr_ratio
    return max(0.0, factor * (1.0 - min_lr_ratio) + min_lr_ratio)


def _rise(progress: float, shape: str) -> float:
    """From 0 to 1 in the named shape."""
    if shape == "cosine":
        return 0.5 * (1.0 - math.cos(math.pi * progress))
    return progress if shape == "linear" else 1.0 - math.sqrt(1.0 - progress)


def _fall(progress: float, shape: str, num_cycles: float) -> float:
    """From 1 to 0 in the named shape."""
    if shape == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * num_cycles * 2.0 * progress))
    return 1.0 - progress if shape == "linear" else 1.0 - math.sqrt(progress)
