"""Learning-rate schedules by name, and how to read one that runs."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from footplate.optim.curves import CurveLR
from footplate.optim.greedy import GreedyLR, StreamingAverage
from footplate.optim.low_rank import LayerWiseDummyOptimizer, LayerWiseDummyScheduler
from footplate.optim.schedule_makers import (
    get_constant_schedule,
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
    get_cosine_with_hard_restarts_schedule_with_warmup,
    get_cosine_with_min_lr_schedule_with_warmup,
    get_cosine_with_min_lr_schedule_with_warmup_lr_rate,
    get_greedy_schedule,
    get_inverse_sqrt_schedule,
    get_linear_schedule_with_warmup,
    get_polynomial_decay_schedule_with_warmup,
    get_reduce_on_plateau_schedule,
    get_wsd_schedule,
)
from footplate.outputs import SchedulerType

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

__all__ = [
    "SCHEDULES",
    "TYPE_TO_SCHEDULER_FUNCTION",
    "CurveLR",
    "GreedyLR",
    "StreamingAverage",
    "build_schedule",
    "follows_metric",
    "get_constant_schedule",
    "get_constant_schedule_with_warmup",
    "get_cosine_schedule_with_warmup",
    "get_cosine_with_hard_restarts_schedule_with_warmup",
    "get_cosine_with_min_lr_schedule_with_warmup",
    "get_cosine_with_min_lr_schedule_with_warmup_lr_rate",
    "get_greedy_schedule",
    "get_inverse_sqrt_schedule",
    "get_linear_schedule_with_warmup",
    "get_polynomial_decay_schedule_with_warmup",
    "get_reduce_on_plateau_schedule",
    "get_scheduler",
    "get_wsd_schedule",
    "read_learning_rates",
]

logger = logging.getLogger(__name__)


class Schedule(NamedTuple):
    """How one named schedule is made: by which function, and what that must be told of the run."""

    make: Callable[..., LRScheduler]
    needs: tuple[str, ...] = ("num_warmup_steps", "num_training_steps")
    options_of: Callable[..., Any] | None = (
        None  # whose parameters lr_scheduler_kwargs may name, if not `make`'s
    )


SCHEDULES: dict[SchedulerType, Schedule] = {
    SchedulerType.LINEAR: Schedule(get_linear_schedule_with_warmup),
    SchedulerType.COSINE: Schedule(get_cosine_schedule_with_warmup),
    SchedulerType.COSINE_WITH_RESTARTS: Schedule(get_cosine_with_hard_restarts_schedule_with_warmup),
    SchedulerType.POLYNOMIAL: Schedule(get_polynomial_decay_schedule_with_warmup),
    SchedulerType.CONSTANT: Schedule(get_constant_schedule, needs=()),
    SchedulerType.CONSTANT_WITH_WARMUP: Schedule(
        get_constant_schedule_with_warmup, needs=("num_warmup_steps",)
    ),
    SchedulerType.INVERSE_SQRT: Schedule(get_inverse_sqrt_schedule, needs=("num_warmup_steps",)),
    SchedulerType.REDUCE_ON_PLATEAU: Schedule(get_reduce_on_plateau_schedule, (), ReduceLROnPlateau),
    SchedulerType.COSINE_WITH_MIN_LR: Schedule(get_cosine_with_min_lr_schedule_with_warmup),
    SchedulerType.COSINE_WARMUP_WITH_MIN_LR: Schedule(get_cosine_with_min_lr_schedule_with_warmup_lr_rate),
    SchedulerType.WARMUP_STABLE_DECAY: Schedule(get_wsd_schedule),
    SchedulerType.GREEDY: Schedule(get_greedy_schedule, (), GreedyLR),
}
TYPE_TO_SCHEDULER_FUNCTION = {name: schedule.make for name, schedule in SCHEDULES.items()}

# these two take no settings of their own, and the API lets them be given and ignores them
WITHOUT_OPTIONS = (SchedulerType.CONSTANT, SchedulerType.CONSTANT_WITH_WARMUP)


def build_schedule(args: TrainingArguments, optimizer: Optimizer, num_steps: int) -> LRScheduler:
    """The schedule named by `args.lr_scheduler_type`, warmed up, ending at `num_steps`."""
    num_warmup_steps = args.get_warmup_steps(num_steps)
    return get_scheduler(
        args.lr_scheduler_type, optimizer, num_warmup_steps, num_steps, args.lr_scheduler_kwargs
    )


def get_scheduler(
    name: str | SchedulerType,
    optimizer: Optimizer,
    num_warmup_steps: int | None = None,
    num_training_steps: int | None = None,
    scheduler_specific_kwargs: dict[str, Any] | None = None,
) -> LRScheduler:
    """The schedule of that name, for any of them.

    Args:
        name: One of `SchedulerType`.
        optimizer: Whose rates to set.
        num_warmup_steps: Updates of the warm-up, where the schedule has one.
        num_training_steps: Updates of the run, where the schedule has an end.
        scheduler_specific_kwargs: Settings of this schedule alone: `lr_scheduler_kwargs` of the arguments.
    """
    name = SchedulerType(getattr(name, "value", name))
    schedule = SCHEDULES[name]
    options = scheduler_specific_kwargs or {}
    if options and name in WITHOUT_OPTIONS:
        logger.warning(
            f"lr_scheduler_kwargs={options} has no effect: the schedule {str(name)!r} has no settings."
        )
        options = {}
    given = {"num_warmup_steps": num_warmup_steps, "num_training_steps": num_training_steps}
    needed = {need: given[need] for need in schedule.needs}
    _check_needs(name, needed)
    _check_options(name, schedule, options)

    if isinstance(optimizer, LayerWiseDummyOptimizer):
        return LayerWiseDummyScheduler(optimizer, lambda inner: schedule.make(inner, **needed, **options))
    return schedule.make(optimizer, **needed, **options)


def _check_needs(name: SchedulerType, needed: Mapping[str, int | None]) -> None:
    """Raise if the schedule must know more of the run than it was told."""
    for need, value in needed.items():
        # warmup_stable_decay can do with its plateau's length instead of the run's, and checks that itself
        if value is None and (name, need) != (SchedulerType.WARMUP_STABLE_DECAY, "num_training_steps"):
            raise ValueError(f"The schedule {str(name)!r} needs {need}: pass it to get_scheduler.")


def _check_options(name: SchedulerType, schedule: Schedule, options: Mapping[str, Any]) -> None:
    """Raise if `lr_scheduler_kwargs` names a setting that the schedule lacks, or misses one that it needs."""
    parameters = inspect.signature(schedule.options_of or schedule.make).parameters
    allowed = {key: value for key, value in parameters.items() if key not in ("optimizer", *schedule.needs)}
    unknown = sorted(options.keys() - allowed.keys())
    if unknown:
        raise TypeError(
            f"lr_scheduler_kwargs has {unknown}, which the schedule {str(name)!r} does not take. "
            f"It takes {sorted(allowed)}."
        )
    required = [key for key, value in allowed.items() if value.default is inspect.Parameter.empty]
    missing = [key for key in required if key not in options]
    if missing:
        raise TypeError(
            f"The schedule {str(name)!r} needs {missing} in lr_scheduler_kwargs, for example "
            f"lr_scheduler_kwargs={{{missing[0]!r}: 100}}; it got {dict(options)}."
        )


def follows_metric(scheduler: Any) -> bool:
    """Whether the schedule steps on the metric of an evaluation instead of on every update."""
    scheduler = getattr(scheduler, "scheduler", scheduler)  # an Accelerate wrapper holds the real one
    # by name as well: a script may bring the class of that name from transformers
    return isinstance(scheduler, (ReduceLROnPlateau, GreedyLR)) or type(scheduler).__name__ == "GreedyLR"


def read_learning_rates(scheduler: Any, optimizer: Optimizer) -> list[float]:
    """The rate of each parameter group, as plain numbers."""
    rates = (
        [group["lr"] for group in optimizer.param_groups]
        if follows_metric(scheduler)
        else scheduler.get_last_lr()
    )
    return [rate.item() if isinstance(rate, torch.Tensor) else rate for rate in rates]
