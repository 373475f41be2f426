"""One function per rule that settings have to keep; each is silent or says what to change."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from functools import cache
from numbers import Real
from typing import TYPE_CHECKING, Any

from footplate.arguments.derived import LEVELS, has_bf16, has_tf32
from footplate.arguments.durations import parse_duration
from footplate.arguments.suggest import did_you_mean
from footplate.outputs import IntervalStrategy, SaveStrategy, SchedulerType

if TYPE_CHECKING:
    from footplate.arguments.fields import TrainingArguments

logger = logging.getLogger(__name__)

LOG_LEVELS = (*LEVELS, "passive")
SAMPLING_STRATEGIES = ("random", "sequential", "group_by_length", "batch_rebalance", "weighted")
WEIGHTINGS = ("default", "items")
ON_NONFINITE = ("warn", "skip", "raise")
TOKEN_COUNTS = ("all", "non_padding", "no")
START_METHODS = ("fork", "spawn", "forkserver")
DDP_BACKENDS = ("nccl", "gloo", "mpi", "xccl", "hccl", "cncl", "mccl", "ccl")
METRIC_EXTRAS = ("inputs", "loss")


def check_all(args: TrainingArguments) -> None:
    """Run every check."""
    for check in CHECKS:
        check(args)


def is_number(value: Any) -> bool:
    """Whether `value` is a finite number, of Python or numpy; True and False are none."""
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def check_number(
    args: TrainingArguments,
    name: str,
    low: float,
    high: float = math.inf,
    *,
    whole: bool = False,
    none: bool = False,
) -> None:
    """Refuse a setting that is no number from `low` to `high`."""
    value = getattr(args, name)
    if none and value is None:
        return
    if is_number(value) and low <= value <= high and (not whole or value == int(value)):
        return
    kind = "a whole number" if whole else "a number"
    if high < math.inf:
        kind += f" from {_plain(low)} to {_plain(high)}"
    elif low > -math.inf:
        kind += f" of {low:g} or more"
    raise ValueError(f"{name}={value!r} is not possible. Set {name} to {kind}{', or None' if none else ''}.")


def check_choice(name: str, value: Any, allowed: Iterable[str], *, none: bool = False) -> None:
    """Refuse a word that a setting does not know."""
    allowed = list(allowed)
    if value not in allowed and not (none and value is None):
        hint = did_you_mean(value, allowed)
        raise ValueError(f"{name}={value!r} is not known.{hint} Set {name} to one of {allowed}.")


def check_batch_sizes(args: TrainingArguments) -> None:
    """A batch has at least one sample, an update at least one batch."""
    check_number(args, "per_device_train_batch_size", 1, whole=True)
    check_number(args, "per_device_eval_batch_size", 1, whole=True)
    check_number(args, "gradient_accumulation_steps", 1, whole=True)


def check_duration(args: TrainingArguments) -> None:
    """A run has an end; any max_steps up to 0 leaves it to the epochs."""
    check_number(args, "num_train_epochs", 0)
    check_number(args, "max_steps", -math.inf, whole=True)


def check_learning_rate(args: TrainingArguments) -> None:
    """Rate and warm-up are not negative."""
    check_number(args, "learning_rate", 0)
    check_number(args, "warmup_steps", 0)


def check_optimizer_numbers(args: TrainingArguments) -> None:
    """The optimizer's numbers are in the range where it is defined."""
    check_number(args, "weight_decay", 0)
    check_number(args, "adam_beta1", 0, 1)
    check_number(args, "adam_beta2", 0, 1)
    check_number(args, "adam_epsilon", 0)


def check_regularization(args: TrainingArguments) -> None:
    """Clipping, smoothing and noise are shares or strengths, not debts."""
    check_number(args, "max_grad_norm", 0, none=True)
    check_number(args, "label_smoothing_factor", 0, 1)
    check_number(args, "neftune_noise_alpha", 0, none=True)


def check_counts(args: TrainingArguments) -> None:
    """What is counted is a whole number, and positive where 0 would say nothing."""
    check_number(args, "torch_empty_cache_steps", 1, whole=True, none=True)
    check_number(args, "eval_accumulation_steps", 1, whole=True, none=True)
    check_number(args, "eval_delay", 0, none=True)
    check_number(args, "train_metrics", 0, whole=True)
    check_number(args, "show_samples", 0, whole=True)
    check_number(args, "max_eval_samples", 1, whole=True, none=True)
    check_number(args, "ddp_timeout", 1)


def check_seeds(args: TrainingArguments) -> None:
    """Seeds are what numpy takes: whole numbers of 32 bits."""
    check_number(args, "seed", 0, 2**32 - 1, whole=True)
    check_number(args, "data_seed", 0, 2**32 - 1, whole=True, none=True)


def check_choices(args: TrainingArguments) -> None:
    """Words are among those that mean something."""
    check_choice("log_level", args.log_level, LOG_LEVELS)
    check_choice("log_level_replica", args.log_level_replica, LOG_LEVELS)
    check_choice("include_num_input_tokens_seen", args.include_num_input_tokens_seen, TOKEN_COUNTS)
    check_choice("train_sampling_strategy", args.train_sampling_strategy, SAMPLING_STRATEGIES)
    check_choice("loss_weighting", args.loss_weighting, WEIGHTINGS)
    check_choice("on_nonfinite", args.on_nonfinite, ON_NONFINITE)
    check_choice("ddp_backend", args.ddp_backend, DDP_BACKENDS, none=True)
    method = args.dataloader_multiprocessing_context
    check_choice("dataloader_multiprocessing_context", method, START_METHODS, none=True)
    for extra in args.include_for_metrics:
        check_choice("include_for_metrics", extra, METRIC_EXTRAS)


def check_intervals(args: TrainingArguments) -> None:
    """Steps between two events are a whole number, or a share of the run below 1."""
    check_interval("logging_steps", args.logging_strategy, args.logging_steps)
    check_interval("eval_steps", args.eval_strategy, args.eval_steps)
    if not is_number(args.save_steps) or args.save_steps > 0:  # 0 and less are an old way to save nothing
        check_interval("save_steps", args.save_strategy, args.save_steps)


def check_interval(name: str, strategy: str, steps: Any) -> None:
    """Refuse steps that a strategy of steps could not keep to."""
    if strategy != IntervalStrategy.STEPS:
        return
    if not is_number(steps) or steps <= 0 or (steps > 1 and steps != int(steps)):
        raise ValueError(
            f"{name}={steps!r} does not fit {name.replace('steps', 'strategy')}='steps'. "
            f"Set {name} to a whole number of updates, or to a share of the run below 1."
        )


def check_precision(args: TrainingArguments) -> None:
    """One reduced precision at a time, and one that the device has."""
    for first, second in (("fp16", "bf16"), ("fp16_full_eval", "bf16_full_eval")):
        if getattr(args, first) and getattr(args, second):
            raise ValueError(f"{first}=True and {second}=True exclude each other. Set one of them to False.")
    if args.fp16 and args.device.type == "cpu":
        raise ValueError(
            "fp16=True needs an accelerator, and this run is on the CPU. "
            "Set bf16=True for mixed precision on the CPU, or fp16=False."
        )
    if (args.bf16 or args.bf16_full_eval) and not has_bf16(args.device):
        name = "bf16" if args.bf16 else "bf16_full_eval"
        raise ValueError(
            f"{name}=True, but {args.device} cannot compute in bfloat16. Use fp16, or set use_cpu=True."
        )


def check_tf32(args: TrainingArguments) -> None:
    """TF32 is asked for only where it exists."""
    if args.tf32 and not has_tf32(args.device):
        raise ValueError(
            f"tf32=True needs an Ampere or newer GPU; this run is on {args.device}. Leave tf32 unset."
        )


def check_best_model(args: TrainingArguments) -> None:
    """Something has to measure which model is best; when it is saved and measured may differ."""
    if args.eval_strategy != IntervalStrategy.NO:
        return
    if args.load_best_model_at_end:
        asked = "load_best_model_at_end=True"
    elif args.save_strategy == SaveStrategy.BEST:
        asked = "save_strategy='best'"
    elif args.lr_scheduler_type in (SchedulerType.REDUCE_ON_PLATEAU, SchedulerType.GREEDY):
        asked = f"lr_scheduler_type={str(args.lr_scheduler_type)!r}"
    else:
        return
    raise ValueError(
        f"{asked} needs evaluations to go by, but eval_strategy='no' makes none. "
        "Set eval_strategy to 'steps' or 'epoch'."
    )


def check_workers(args: TrainingArguments) -> None:
    """What is said of data workers needs workers."""
    check_number(args, "dataloader_num_workers", 0, whole=True)
    check_number(args, "dataloader_prefetch_factor", 1, whole=True, none=True)
    if args.dataloader_num_workers > 0:
        return
    for name in ("dataloader_prefetch_factor", "dataloader_persistent_workers"):
        if getattr(args, name):
            raise ValueError(
                f"{name}={getattr(args, name)!r} is about workers, but dataloader_num_workers=0 starts none. "
                f"Set dataloader_num_workers to 1 or more, or leave {name} out."
            )


def check_param_groups(args: TrainingArguments) -> None:
    """A parameter group says which parameters it takes, or how the rate decays by layer."""
    for group in args.param_groups or []:
        if not isinstance(group, dict) or not group.keys() & {"match", "layer_decay"}:
            raise ValueError(
                f"param_groups holds {group!r}. Each group is a dictionary with 'match' (a pattern of names) "
                "or 'layer_decay' (a factor), such as {'match': 'head.*', 'lr': 1e-3}."
            )


def check_sample_weights(args: TrainingArguments) -> None:
    """Weighted sampling needs weights that can be drawn by."""
    weights = args.sample_weights
    if args.train_sampling_strategy == "weighted" and weights is None:
        raise ValueError(
            "train_sampling_strategy='weighted' draws by sample_weights, and there are none. "
            "Set sample_weights to a column of the dataset or to a list with one weight per sample."
        )
    if isinstance(weights, (list, tuple)) and not all(0 <= weight < math.inf for weight in weights):
        raise ValueError(
            "sample_weights holds a weight that is negative or not finite. Give weights of 0 or more."
        )
    if args.train_sampling_strategy != "weighted" and weights is not None:
        warn_once("sample_weights has no effect: it goes with train_sampling_strategy='weighted'.")


def check_times(args: TrainingArguments) -> None:
    """Lengths of time can be read as such."""
    for name in ("save_every", "max_time"):
        value = getattr(args, name)
        if value is not None:
            parse_duration(value, name)


@cache
def warn_once(message: str) -> None:
    """Log a warning, the first time only."""
    logger.warning(message)


CHECKS: tuple[Callable[[TrainingArguments], None], ...] = (
    check_batch_sizes,
    check_duration,
    check_learning_rate,
    check_optimizer_numbers,
    check_regularization,
    check_counts,
    check_seeds,
    check_choices,
    check_intervals,
    check_precision,
    check_tf32,
    check_best_model,
    check_workers,
    check_param_groups,
    check_sample_weights,
    check_times,
)


def _plain(number: float) -> str:
    """A bound without an exponent where it is whole."""
    return str(int(number)) if number == int(number) else f"{number:g}"
