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
    """The optimizer's own rate, always.

    Args:
        optimizer: Whose rates to set.
        last_epoch: The last update already done, when resuming without a saved state.
    """
    return CurveLR(optimizer, curves.constant, last_epoch)


def get_constant_schedule_with_warmup(
    optimizer: Optimizer, num_warmup_steps: int, last_epoch: int = -1
) -> LambdaLR:
    """A straight rise from 0 to the optimizer's rate, which then stays.

    Args:
        optimizer: Whose rates to set.
        num_warmup_steps: Updates of the rise.
        last_epoch: The last update already done, when resuming without a saved state.
    """
    curve = partial(curves.constant_after_warmup, num_warmup_steps=num_warmup_steps)
    return CurveLR(optimizer, curve, last_epoch)


def get_linear_schedule_with_warmup(
    optimizer: Optimizer, num_warmup_steps: int, num_training_steps: int, last_epoch: int = -1
) -> LambdaLR:
    """A straight rise to the optimizer's rate, then a straight fall to 0.

    Args:
        optimizer: Whose rates to set.
        num_warmup_steps: Updates of the rise.
        num_training_steps: The update at which the rate is 0.
        last_epoch: The last update already done, when resuming without a saved state.
    """
    curve = partial(curves.linear, num_warmup_steps=num_warmup_steps, num_training_steps=num_training_steps)
    return CurveLR(optimizer, curve, last_epoch)


def get_cosine_schedule_with_warmup(
    optimizer: Optimizer,
    num_warmup_steps: int,
    num_training_steps: int,
    num_cycles: float = 0.5,
    last_epoch: int = -1,
) -> LambdaLR:
    """A straight rise, then waves of a cosine; half a wave, the default, ends at 0.

    Args:
        optimizer: Whose rates to set.
        num_warmup_steps: Updates of the rise.
        num_training_steps: The update at which the last wave ends.
        num_cycles: Waves between rise and end.
        last_epoch: The last update already done, when resuming without a saved state.
    """
    curve = partial(
        curves.cosine,
        num_warmup_steps=num_warmup_steps,
        num_training_steps=num_training_steps,
        num_cycles=num_cycles,
    )
    return CurveLR(optimizer, curve, last_epoch)


def get_cosine_with_hard_restarts_schedule_with_warmup(
    optimizer: Optimizer,
    num_warmup_steps: int,
    num_training_steps: int,
    num_cycles: int = 1,
    last_epoch: int = -1,
) -> LambdaLR:
    """A straight rise, then half a cosine down to 0, again and again.

    Args:
        optimizer: Whose rates to set.
        num_warmup_steps: Updates of the rise.
        num_training_steps: The update at which the last fall ends.
        num_cycles: How often to fall.
        last_epoch: The last update already done, when resuming without a saved state.
    """
    curve = partial(
        curves.cosine_with_restarts,
        num_warmup_steps=num_warmup_steps,
        num_training_steps=num_training_steps,
        num_cycles=num_cycles,
    )
    return CurveLR(optimizer, curve, last_epoch)


def get_polynomial_decay_schedule_with_warmup(
    optimizer: Optimizer,
    num_warmup_steps: int,
    num_training_steps: int,
    lr_end: float = 1e-7,
    power: float = 1.0,
    last_epoch: int = -1,
) -> LambdaLR:
    """A straight rise, then a polynomial fall to `lr_end`.

    Args:
        optimizer: Whose rates to set.
        num_warmup_steps: Updates of the rise.
        num_training_steps: The update at which `lr_end` is reached.
        lr_end: The last rate, below the optimizer's.
        power: The degree of the polynomial; 1 is a straight line.
        last_epoch: The last update already done, when resuming without a saved state.
    """
    lr_init = optimizer.defaults["lr"]
    if not lr_init > lr_end:
        raise ValueError(
            f"lr_end={lr_end} must be below the learning rate, {lr_init}: "
            "give a smaller lr_end in lr_scheduler_kwargs, or a larger learning_rate."
        )
    curve = partial(
        curves.polynomial,
        num_warmup_steps=num_warmup_steps,
        num_training_steps=num_training_steps,
        lr_end=lr_end,
        power=power,
        lr_init=lr_init,
    )
    return CurveLR(optimizer, curve, last_epoch)


def get_inverse_sqrt_schedule(
    optimizer: Optimizer, num_warmup_steps: int, timescale: int | None = None, last_epoch: int = -1
) -> LambdaLR:
    """A straight rise, then a fall with the inverse square root of the update's number.

    Args:
        optimizer: Whose rates to set.
        num_warmup_steps: Updates of the rise.
        timescale: How slowly the rate falls; by default the length of the rise, or 10 000 without one.
        last_epoch: The last update already done, when resuming without a saved state.
    """
    if timescale is None:
        timescale = num_warmup_steps or 10_000
    if timescale <= 0:
        raise ValueError(f"timescale={timescale} must be positive: change it in lr_scheduler_kwargs.")
    curve = partial(curves.inverse_sqrt, num_warmup_steps=num_warmup_steps, timescale=timescale)
    return CurveLR(optimizer, curve, last_epoch)


def get_cosine_with_min_lr_schedule_with_warmup(
    optimizer: Optimizer,
    num_warmup_steps: int,
    num_training_steps: int,
    num_cycles: float = 0.5,
    last_epoch: int = -1,
    min_lr: float | None = None,
    min_lr_rate: float | None = None,
) -> LambdaLR:
    """A straight rise, then waves of a cosine that never go below a lowest rate.

    Args:
        optimizer: Whose rates to set.
        num_warmup_steps: Updates of the rise.
        num_training_steps: The update at which the last wave ends.
        num_cycles: Waves between rise and end.
        last_epoch: The last update already done, when resuming without a saved state.
        min_lr: The lowest rate; give this or `min_lr_rate`.
        min_lr_rate: The lowest rate as a share of the optimizer's.
    """
    curve = partial(
        curves.cosine,
        num_warmup_steps=num_warmup_steps,
        num_training_steps=num_training_steps,
        num_cycles=num_cycles,
        min_lr_rate=_lowest_share(optimizer, min_lr, min_lr_rate),
    )
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
        optimizer: Whose rates to set.
        num_warmup_steps: Updates of the rise.
        num_training_steps: The update at which the last wave ends.
        num_cycles: Waves between rise and end.
        last_epoch: The last update already done, when resuming without a saved state.
        min_lr: The lowest rate after the rise; give this or `min_lr_rate`.
        min_lr_rate: The lowest rate as a share of the optimizer's.
        warmup_lr_rate: The first rate as a share of the optimizer's; by default 1 / `num_warmup_steps`.
    """
    curve = partial(
        curves.cosine_from_first_update,
        num_warmup_steps=num_warmup_steps,
        num_training_steps=num_training_steps,
        num_cycles=num_cycles,
        min_lr_rate=_lowest_share(optimizer, min_lr, min_lr_rate),
        warmup_lr_rate=warmup_lr_rate,
    )
    return CurveLR(optimizer, curve, last_epoch)


def _lowest_share(optimizer: Optimizer, min_lr: float | None, min_lr_rate: float | None) -> float:
    """The lowest rate as a share of the optimizer's, from whichever of the two was given."""
    if (min_lr is None) == (min_lr_rate is None):
        raise ValueError(
            f"This schedule needs min_lr or min_lr_rate, one of them, in lr_scheduler_kwargs; "
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
    """A rise, a plateau at the optimizer's rate, and a fall.

    Args:
        optimizer: Whose rates to set.
        num_warmup_steps: Updates of the rise.
        num_decay_steps: Updates of the fall.
        num_training_steps: Updates in all; what rise and fall leave of them is the plateau.
        num_stable_steps: Updates of the plateau, instead.
        warmup_type: Shape of the rise: "linear", "cosine" or "1-sqrt".
        decay_type: Shape of the fall: the same names.
        min_lr_ratio: Where the rise begins and the fall ends, as a share of the optimizer's rate.
        num_cycles: Waves of a cosine fall.
        last_epoch: The last update already done, when resuming without a saved state.
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
    curve = partial(
        curves.warmup_stable_decay,
        num_warmup_steps=num_warmup_steps,
        num_stable_steps=num_stable_steps,
        num_decay_steps=num_decay_steps,
        warmup_type=warmup_type,
        decay_type=decay_type,
        min_lr_ratio=min_lr_ratio,
        num_cycles=num_cycles,
    )
    return CurveLR(optimizer, curve, last_epoch)


def get_reduce_on_plateau_schedule(optimizer: Optimizer, **kwargs: Any) -> ReduceLROnPlateau:
    """A constant rate that falls when the metric of an evaluation has stopped improving.

    Args:
        optimizer: Whose rates to set.
        **kwargs: What `torch.optim.lr_scheduler.ReduceLROnPlateau` takes.
    """
    return ReduceLROnPlateau(optimizer, **kwargs)


def get_greedy_schedule(optimizer: Optimizer, **kwargs: Any) -> GreedyLR:
    """A rate that rises while the metric improves and falls while it does not.

    Args:
        optimizer: Whose rates to set.
        **kwargs: What `GreedyLR` takes.
    """
    return GreedyLR(optimizer, **kwargs)
