"""Learning-rate schedules by name, and the step of one after an update."""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from footplate.optim import schedule_makers as makers
from footplate.optim.greedy import GreedyLR
from footplate.optim.low_rank import LayerWiseDummyOptimizer, LayerWiseDummyScheduler
from footplate.outputs import SchedulerType

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

logger = logging.getLogger(__name__)


class Schedule(NamedTuple):
    """The function that makes a schedule, and which facts about the run it needs."""

    make: Callable[..., LRScheduler]
    needs: tuple[str, ...] = ("num_warmup_steps", "num_training_steps")
    # Its parameters are the names that lr_scheduler_kwargs may hold; None means the parameters of `make`.
    options_of: Callable[..., Any] | None = None


Names = SchedulerType
SCHEDULES: dict[SchedulerType, Schedule] = {
    Names.LINEAR: Schedule(makers.get_linear_schedule_with_warmup),
    Names.COSINE: Schedule(makers.get_cosine_schedule_with_warmup),
    Names.COSINE_WITH_RESTARTS: Schedule(makers.get_cosine_with_hard_restarts_schedule_with_warmup),
    Names.POLYNOMIAL: Schedule(makers.get_polynomial_decay_schedule_with_warmup),
    Names.CONSTANT: Schedule(makers.get_constant_schedule, needs=()),
    Names.CONSTANT_WITH_WARMUP: Schedule(
        makers.get_constant_schedule_with_warmup, needs=("num_warmup_steps",)
    ),
    Names.INVERSE_SQRT: Schedule(makers.get_inverse_sqrt_schedule, needs=("num_warmup_steps",)),
    Names.REDUCE_ON_PLATEAU: Schedule(makers.get_reduce_on_plateau_schedule, (), ReduceLROnPlateau),
    Names.COSINE_WITH_MIN_LR: Schedule(makers.get_cosine_with_min_lr_schedule_with_warmup),
    Names.COSINE_WARMUP_WITH_MIN_LR: Schedule(makers.get_cosine_with_min_lr_schedule_with_warmup_lr_rate),
    Names.WARMUP_STABLE_DECAY: Schedule(makers.get_wsd_schedule),
    Names.GREEDY: Schedule(makers.get_greedy_schedule, (), GreedyLR),
}
TYPE_TO_SCHEDULER_FUNCTION = {name: schedule.make for name, schedule in SCHEDULES.items()}

# These two have no settings. The API accepts lr_scheduler_kwargs for them and ignores it.
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
    """The schedule called `name`.

    Args:
        name: One of `SchedulerType`.
        optimizer: The optimizer whose rates to set.
        num_warmup_steps: Updates of warm-up, if the schedule has one.
        num_training_steps: Updates of the run, if the schedule has an end.
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
    """Raise if a number that the schedule needs is missing."""
    for need, value in needed.items():
        # warmup_stable_decay may get num_stable_steps instead, and checks that itself
        if value is None and (name, need) != (SchedulerType.WARMUP_STABLE_DECAY, "num_training_steps"):
            raise ValueError(f"The schedule {str(name)!r} needs {need}: pass it to get_scheduler.")


def _check_options(name: SchedulerType, schedule: Schedule, options: Mapping[str, Any]) -> None:
    """Raise if `lr_scheduler_kwargs` has a setting that the schedule does not take, or lacks one it needs."""
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
    scheduler = getattr(scheduler, "scheduler", scheduler)  # the schedule inside an Accelerate wrapper
    # also by name: a script may use the GreedyLR of transformers
    return isinstance(scheduler, (ReduceLROnPlateau, GreedyLR)) or type(scheduler).__name__ == "GreedyLR"


def advance(scheduler: Any) -> None:
    """Move the schedule after an update, unless it follows a metric: then it moves after an evaluation."""
    if not follows_metric(scheduler):
        scheduler.step()


def keep_place(scheduler: Any, optimizer: Any) -> Callable[[], None]:
    """What sets a schedule, and the settings that it changes in an optimizer, back to where they are now."""
    state = copy.deepcopy(scheduler.state_dict())
    groups = optimizer.param_groups
    before = [{name: copy.deepcopy(group[name]) for name in group if name != "params"} for group in groups]

    def put_back() -> None:
        scheduler.load_state_dict(copy.deepcopy(state))
        for group, settings in zip(groups, before, strict=True):
            for name, value in settings.items():
                if isinstance(group[name], torch.Tensor):  # the optimizer may hold this very one
                    group[name].copy_(value)
                else:
                    group[name] = value

    return put_back
