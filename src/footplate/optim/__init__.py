"""Optimizers, parameter groups and learning-rate schedules, by name."""

from footplate.optim.adafactor import Adafactor, AdafactorSchedule, get_adafactor_schedule
from footplate.optim.groups import (
    build_optimizer,
    build_parameter_groups,
    decay_parameter_names,
    get_parameter_names,
)
from footplate.optim.low_rank import LayerWiseDummyOptimizer, LayerWiseDummyScheduler
from footplate.optim.names import find_optimizer
from footplate.optim.schedules import (
    TYPE_TO_SCHEDULER_FUNCTION,
    GreedyLR,
    build_schedule,
    follows_metric,
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
    get_scheduler,
    get_wsd_schedule,
    read_learning_rates,
)

__all__ = [
    "TYPE_TO_SCHEDULER_FUNCTION",
    "Adafactor",
    "AdafactorSchedule",
    "GreedyLR",
    "LayerWiseDummyOptimizer",
    "LayerWiseDummyScheduler",
    "build_optimizer",
    "build_parameter_groups",
    "build_schedule",
    "decay_parameter_names",
    "find_optimizer",
    "follows_metric",
    "get_adafactor_schedule",
    "get_constant_schedule",
    "get_constant_schedule_with_warmup",
    "get_cosine_schedule_with_warmup",
    "get_cosine_with_hard_restarts_schedule_with_warmup",
    "get_cosine_with_min_lr_schedule_with_warmup",
    "get_cosine_with_min_lr_schedule_with_warmup_lr_rate",
    "get_greedy_schedule",
    "get_inverse_sqrt_schedule",
    "get_linear_schedule_with_warmup",
    "get_parameter_names",
    "get_polynomial_decay_schedule_with_warmup",
    "get_reduce_on_plateau_schedule",
    "get_scheduler",
    "get_wsd_schedule",
    "read_learning_rates",
]
