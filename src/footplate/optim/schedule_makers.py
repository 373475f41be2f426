"""One function per schedule, with the names and parameters of the API."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from footplate.optim import curves
from footplate.optim.curves import CurveLR
from footplate.optim.greedy import GreedyLR

logger = logging.getLogger(__name__)

WSD_SHAPES = ("linear", "cosine", "1-sqrt")


def get_constant_schedule(optimizer: Optimizer, last_epoch: int = -1) -> LambdaLR:
    """A constant rate: the optimizer's.

    Args:
        optimizer: The optimizer whose rates to set.
        last_epoch: Number of the last update that is done, if the run resumes without a saved state.
    """
    return CurveLR(optimizer, curves.constant, last_epoch)


def get_constant_schedule_with_warmup(
    optimizer: Optimizer, num_warmup_steps: int, last_epoch: int = -1
) -> LambdaLR:
    """Linear warm-up from 0 to the optimizer's rate, which then stays.

    Args:
        optimizer: The optimizer whose rates to set.
        num_warmup_steps: Updates of warm-up.
        last_epoch: Number of the last update that is done, if the run resumes without a saved state.
    """
    return CurveLR(optimizer, partial(curves.constant_after_warmup, num_warmup_steps), last_epoch)


def get_linear_schedule_with_warmup(
    optimizer: Optimizer, num_warmup_steps: int, num_training_steps: int, last_epoch: int = -1
) -> LambdaLR:
    """Linear warm-up to the optimizer's rate, then a linear fall to 0.

    Args:
        optimizer: The optimizer whose rates to set.
        num_warmup_steps: Updates of warm-up.
        num_training_steps: The update at which the rate is 0.
        last_epoch: Number of the last update that is done, if the run resumes without a saved state.
    """
    return CurveLR(optimizer, partial(curves.linear, num_warmup_steps, num_training_steps), last_epoch)


def get_cosine_schedule_with_warmup(
    optimizer: Optimizer,
    num_warmup_steps: int,
    num_training_steps: int,
    num_cycles: float = 0.5,
    last_epoch: int = -1,
) -> LambdaLR:
    """Linear warm-up, then waves of a cosine; half a wave, the default, ends at 0.

    Args:
        optimizer: The optimizer whose rates to set.
        num_warmup_steps: Updates of warm-up.
        num_training_steps: The update at which the last wave ends.
        num_cycles: Waves after the warm-up.
        last_epoch: Number of the last update that is done, if the run resumes without a saved state.
    """
    curve = partial(curves.cosine, num_warmup_steps, num_training_steps, num_cycles, 0.0)
    return CurveLR(optimizer, curve, last_epoch)


def get_cosine_with_hard_restarts_schedule_with_warmup(
    optimizer: Optimizer,
    num_warmup_steps: int,
    num_training_steps: int,
    num_cycles: int = 1,
    last_epoch: int = -1,
) -> LambdaLR:
    """Linear warm-up, then `num_cycles` times half a wave of a cosine from the optimizer's rate down to 0.

    Args:
        optimizer: The optimizer whose rates to set.
        num_warmup_steps: Updates of warm-up.
        num_training_steps: The update at which the last fall ends.
        num_cycles: How often the rate falls.
        last_epoch: Number of the last update that is done, if the run resumes without a saved state.
    """
    curve = partial(curves.cosine_with_restarts, num_warmup_steps, num_training_steps, num_cycles)
    return CurveLR(optimizer, curve, last_epoch)


def get_polynomial_decay_schedule_with_warmup(
    optimizer: Optimizer,
    num_warmup_steps: int,
    num_training_steps: int,
    lr_end: float = 1e-7,
    power: float = 1.0,
    last_epoch: int = -1,
) -> LambdaLR:
    """Linear warm-up, then a polynomial fall to `lr_end`.

    Args:
        optimizer: The optimizer whose rates to set.
        num_warmup_steps: Updates of warm-up.
        num_training_steps: The update at which `lr_end` is reached.
        lr_end: The last rate; must be below the optimizer's.
        power: The degree of the polynomial; 1 is a straight line.
        last_epoch: Number of the last update that is done, if the run resumes without a saved state.
    """
    lr_init = optimizer.defaults["lr"]
    if not lr_init > lr_end:
        raise ValueError(
            f"lr_end={lr_end} must be below the learning rate, {lr_init}: "
            "give a smaller lr_end in lr_scheduler_kwargs, or a larger learning_rate."
        )
    curve = partial(curves.polynomial, num_warmup_steps, num_training_steps, lr_end, power, lr_init)
    return CurveLR(optimizer, curve, last_epoch)


def get_inverse_sqrt_schedule(
    optimizer: Optimizer, num_warmup_steps: int, timescale: int | None = None, last_epoch: int = -1
) -> LambdaLR:
    """Linear warm-up, then a fall with the inverse square root of the update's number.

    Args:
        optimizer: The optimizer whose rates to set.
        num_warmup_steps: Updates of warm-up.
        timescale: How slowly the rate falls; by default the updates of warm-up, or 10 000 without warm-up.
        last_epoch: Number of the last update that is done, if the run resumes without a saved state.
    """
    if timescale is None:
        timescale = num_warmup_steps or 10_000
    if timescale <= 0:
        raise ValueError(f"timescale={timescale} must be positive: change it in lr_scheduler_kwargs.")
    return CurveLR(optimizer, partial(curves.inverse_sqrt, num_warmup_steps, timescale), last_epoch)


def get_cosine_with_min_lr_schedule_with_warmup(
    optimizer: Optimizer,
    num_warmup_steps: int,
    num_training_steps: int,
    num_cycles: float = 0.5,
    last_epoch: int = -1,
    min_lr: float | None = None,
    min_lr_rate: float | None = None,
) -> LambdaLR:
    """Linear warm-up, then waves of a cosine down to a lowest rate.

    Args:
        optimizer: The optimizer whose rates to set.
        num_warmup_steps: Updates of warm-up.
        num_training_steps: The update at which the last wave ends.
        num_cycles: Waves after the warm-up.
        last_epoch: Number of the last update that is done, if the run resumes without a saved state.
        min_lr: The lowest rate; give this or `min_lr_rate`.
        min_lr_rate: The lowest rate as a share of the optimizer's.
    """
    lowest = _find_lowest_factor(optimizer, min_lr, min_lr_rate)
    curve = partial(curves.cosine, num_warmup_steps, num_training_steps, num_cycles, lowest)
    return CurveLR(optimizer, curve, last_epoch)


def get_cosine_with_min_lr_schedule_with_warmup_lr_rate(
    optimizer: Optimizer,
    num_warmup_steps: int,
    num_training_steps: int,
    num_cycles: float = 0.5,
    last_epoch: int = -1,
    min_lr: float | None = None,
    min_lr_rate: float | None = None,
    warmup_lr_rate: float | None = None,
) -> LambdaLR:
    """Like `get_cosine_with_min_lr_schedule_with_warmup`, with a first rate above 0.

    Args:
        optimizer: The optimizer whose rates to set.
        num_warmup_steps: Updates of warm-up.
        num_training_steps: The update at which the last wave ends.
        num_cycles: Waves after the warm-up.
        last_epoch: Number of the last update that is done, if the run resumes without a saved state.
        min_lr: The lowest rate after the warm-up; give this or `min_lr_rate`.
        min_lr_rate: The lowest rate as a share of the optimizer's.
        warmup_lr_rate: The first rate as a share of the optimizer's; by default 1 / `num_warmup_steps`.
    """
    settings = (num_cycles, _find_lowest_factor(optimizer, min_lr, min_lr_rate), warmup_lr_rate)
    curve = partial(curves.cosine_from_first_update, num_warmup_steps, num_training_steps, *settings)
    return CurveLR(optimizer, curve, last_epoch)


def _find_lowest_factor(optimizer: Optimizer, min_lr: float | None, min_lr_rate: float | None) -> float:
    """The lowest rate as a share of the optimizer's, from the one of the two settings that was given."""
    if (min_lr is None) == (min_lr_rate is None):
        raise ValueError(
            "This schedule needs either min_lr or min_lr_rate in lr_scheduler_kwargs; "
            f"it got min_lr={min_lr} and min_lr_rate={min_lr_rate}."
        )
    return min_lr / optimizer.defaults["lr"] if min_lr is not None else min_lr_rate  # type: ignore[return-value]


def get_wsd_schedule(
    optimizer: Optimizer,
    num_warmup_steps: int,
    num_decay_steps: int,
    num_training_steps: int | None = None,
    num_stable_steps: int | None = None,
    warmup_type: str = "linear",
    decay_type: str = "cosine",
    min_lr_ratio: float = 0,
    num_cycles: float = 0.5,
    last_epoch: int = -1,
) -> LambdaLR:
    """Warm-up, a constant part at the optimizer's rate, then a fall.

    Args:
        optimizer: The optimizer whose rates to set.
        num_warmup_steps: Updates of warm-up.
        num_decay_steps: Updates of the fall.
        num_training_steps: Updates in all; those that are neither warm-up nor fall have the constant rate.
        num_stable_steps: Updates with the constant rate; may be given instead of `num_training_steps`.
        warmup_type: Shape of the warm-up: "linear", "cosine" or "1-sqrt".
        decay_type: Shape of the fall: the same names.
        min_lr_ratio: Where the warm-up begins and the fall ends, as a share of the optimizer's rate.
        num_cycles: Waves of a cosine fall.
        last_epoch: Number of the last update that is done, if the run resumes without a saved state.
    """
    for name, shape in (("warmup_type", warmup_type), ("decay_type", decay_type)):
        if shape not in WSD_SHAPES:
            raise ValueError(
                f"{name}={shape!r} is not one of {WSD_SHAPES}: change it in lr_scheduler_kwargs."
            )
    if num_stable_steps is None:
        if num_training_steps is None:
            raise ValueError(
                "warmup_stable_decay needs num_training_steps, or num_stable_steps in lr_scheduler_kwargs."
            )
        num_stable_steps = num_training_steps - num_warmup_steps - num_decay_steps
    num_planned_steps = num_warmup_steps + num_stable_steps + num_decay_steps
    if num_training_steps is not None and num_planned_steps != num_training_steps:
        logger.warning(
            f"num_stable_steps={num_stable_steps} makes the schedule {num_planned_steps} updates long, "
            f"but the run has {num_training_steps}: leave it out of lr_scheduler_kwargs to fill the run."
        )
    lengths = (num_warmup_steps, num_stable_steps, num_decay_steps)
    curve = partial(curves.warmup_stable_decay, *lengths, warmup_type, decay_type, min_lr_ratio, num_cycles)
    return CurveLR(optimizer, curve, last_epoch)


def get_reduce_on_plateau_schedule(optimizer: Optimizer, **kwargs: Any) -> ReduceLROnPlateau:
    """A constant rate that falls when the metric of an evaluation has stopped improving.

    Args:
        optimizer: The optimizer whose rates to set.
        **kwargs: What `torch.optim.lr_scheduler.ReduceLROnPlateau` takes.
    """
    return ReduceLROnPlateau(optimizer, **kwargs)


def get_greedy_schedule(optimizer: Optimizer, **kwargs: Any) -> GreedyLR:
    """A rate that rises while the metric improves and falls while it does not improve.

    Args:
        optimizer: The optimizer whose rates to set.
        **kwargs: What `GreedyLR` takes.
    """
    return GreedyLR(optimizer, **kwargs)
