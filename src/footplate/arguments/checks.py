"""The rules for settings: tables of numbers and words, and one function per further rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

from footplate.arguments.derived import has_bf16, has_configured_state, has_tf32
from footplate.arguments.durations import parse_duration
from footplate.arguments.notices import warn_once
from footplate.arguments.suggest import check_word
from footplate.arguments.texts import trainer_log_levels
from footplate.arguments.unsupported import warn_of_no_effect
from footplate.outputs import IntervalStrategy, SaveStrategy, SchedulerType

if TYPE_CHECKING:
    from footplate.arguments.fields import TrainingArguments


class Range(NamedTuple):
    """The numbers that a setting may have."""

    low: float
    high: float = math.inf
    whole: bool = False
    none: bool = False  # whether it may also be None

    def __str__(self) -> str:
        text = "a whole number" if self.whole else "a number"
        if self.high < math.inf:
            text += f" from {self.low} to {self.high}"
        elif self.low > -math.inf:
            text += f" of {self.low} or more"
        return f"{text}, or None" if self.none else text


NUMBERS: dict[str, Range] = {
    "per_device_train_batch_size": Range(1, whole=True),
    "per_device_eval_batch_size": Range(1, whole=True),
    "per_device_train_tokens": Range(1, whole=True, none=True),
    "padding_multiple": Range(1, whole=True, none=True),
    "gradient_accumulation_steps": Range(1, whole=True),
    "num_train_epochs": Range(0),
    "max_steps": Range(-math.inf, whole=True),  # 0 and less leave the end to num_train_epochs
    "learning_rate": Range(0),
    "warmup_steps": Range(0),
    "weight_decay": Range(0),
    "adam_beta1": Range(0, 1),
    "adam_beta2": Range(0, 1),
    "adam_epsilon": Range(0),
    "max_grad_norm": Range(0, none=True),
    "label_smoothing_factor": Range(0, 1),
    "neftune_noise_alpha": Range(0, none=True),
    "torch_empty_cache_steps": Range(1, whole=True, none=True),
    "eval_accumulation_steps": Range(1, whole=True, none=True),
    "eval_delay": Range(0, none=True),
    "train_metrics_batches": Range(0, whole=True),
    "show_samples": Range(0, whole=True),
    "module_stats_steps": Range(0, whole=True, none=True),
    "hardest_rows": Range(0, whole=True),
    "max_eval_samples": Range(1, whole=True, none=True),
    "dataloader_num_workers": Range(0, whole=True),
    "dataloader_prefetch_factor": Range(1, whole=True, none=True),
    "ddp_timeout": Range(1),
    "seed": Range(0, 2**32 - 1, whole=True),  # what numpy takes
    "data_seed": Range(0, 2**32 - 1, whole=True, none=True),
}

CHOICES: dict[str, tuple[str, ...]] = {
    "log_level": tuple(trainer_log_levels),
    "log_level_replica": tuple(trainer_log_levels),
    "include_num_input_tokens_seen": ("all", "non_padding", "no"),
    "train_sampling_strategy": (
        *("random", "sequential", "group_by_length", "batch_rebalance", "weighted"),
        "keyed",  # ours: computed at any position, without memory
    ),
    "loss_weighting": ("batches", "items"),
    "on_nonfinite": ("warn", "skip", "raise"),
    "metrics_on": ("every_rank", "first_rank"),
    "rehearsal": ("quick", "full", "off"),
    "include_for_metrics": ("inputs", "loss"),
    "ddp_backend": ("nccl", "gloo", "mpi", "xccl", "hccl", "cncl", "mccl", "ccl"),
    "dataloader_multiprocessing_context": ("fork", "spawn", "forkserver"),
}
MAY_BE_NONE = ("ddp_backend", "dataloader_multiprocessing_context")


def check_all(args: TrainingArguments) -> None:
    """Run every check, then warn of what has no effect."""
    for check in CHECKS:
        check(args)
    warn_of_no_effect(args)


def is_number(value: Any) -> bool:
    """Whether `value` is a finite number of Python or numpy; True and False do not count as numbers."""
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def check_numbers(args: TrainingArguments) -> None:
    """Refuse numbers outside of their range."""
    for name, allowed in NUMBERS.items():
        value = getattr(args, name)
        if allowed.none and value is None:
            continue
        in_range = is_number(value) and allowed.low <= value <= allowed.high
        if not in_range or (allowed.whole and value != int(value)):
            raise ValueError(f"{name}={value!r} is not possible. Set {name} to {allowed}.")


def check_choices(args: TrainingArguments) -> None:
    """Refuse words that a setting does not know."""
    for name, allowed in CHOICES.items():
        given = getattr(args, name)
        for value in given if isinstance(given, (list, tuple)) else [given]:
            if value is not None or name not in MAY_BE_NONE:
                check_word(name, value, allowed)


def check_intervals(args: TrainingArguments) -> None:
    """Refuse intervals that are neither a whole number of updates nor a share of the run below 1."""
    check_interval("logging_steps", args.logging_strategy, args.logging_steps)
    check_interval("eval_steps", args.eval_strategy, args.eval_steps)
    if not is_number(args.save_steps) or args.save_steps > 0:  # older scripts turn saving off with 0 or less
        check_interval("save_steps", args.save_strategy, args.save_steps)


def check_interval(name: str, strategy: str, steps: Any) -> None:
    """Refuse a number of steps that the strategy "steps" cannot use."""
    if strategy != IntervalStrategy.STEPS:
        return
    if not is_number(steps) or steps <= 0 or (steps > 1 and steps != int(steps)):
        raise ValueError(
            f"{name}={steps!r} does not fit {name.replace('steps', 'strategy')}='steps'. "
            f"Set {name} to a whole number of updates, or to a share of the run below 1."
        )


def check_state(args: TrainingArguments) -> None:
    """Refuse to use a state of Accelerate that the script has not made."""
    if args.accelerator_config.use_configured_state and not has_configured_state():
        raise ValueError(
            "accelerator_config has use_configured_state=True, but there is no state of Accelerate yet. Make "
            "an Accelerator or a PartialState before the arguments, or leave use_configured_state unset."
        )


def check_precision(args: TrainingArguments) -> None:
    """Refuse two precisions at once, and a precision that the device does not have."""
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
    """Refuse TF32 on a device that does not have it."""
    if args.tf32 and not has_tf32(args.device):
        raise ValueError(
            f"tf32=True needs an Ampere or newer GPU; this run is on {args.device}. Leave tf32 unset."
        )


def check_best_model(args: TrainingArguments) -> None:
    """Refuse settings that need the best model without evaluations, which find it."""
    use = find_use_of_best(args)
    if use is not None and args.eval_strategy == IntervalStrategy.NO:
        raise ValueError(
            f"{use} needs evaluations, but eval_strategy='no' turns them off. "
            "Set eval_strategy to 'steps' or 'epoch'."
        )


def find_use_of_best(args: TrainingArguments) -> str | None:
    """The setting that depends on the best model or metric, if one does."""
    if args.load_best_model_at_end:
        return "load_best_model_at_end=True"
    if args.save_strategy == SaveStrategy.BEST:
        return "save_strategy='best'"
    if args.lr_scheduler_type in (SchedulerType.REDUCE_ON_PLATEAU, SchedulerType.GREEDY):
        return f"lr_scheduler_type={str(args.lr_scheduler_type)!r}"
    return None


def check_workers(args: TrainingArguments) -> None:
    """Refuse settings of data workers if there are no workers."""
    if args.dataloader_num_workers > 0:
        return
    for name in ("dataloader_prefetch_factor", "dataloader_persistent_workers"):
        if getattr(args, name):
            raise ValueError(
                f"{name}={getattr(args, name)!r} needs workers, but dataloader_num_workers=0. "
                f"Set dataloader_num_workers to 1 or more, or leave {name} unset."
            )


def check_param_groups(args: TrainingArguments) -> None:
    """Refuse parameter groups that have neither a pattern nor a decay by layer."""
    for group in args.param_groups or []:
        if not isinstance(group, dict) or not group.keys() & {"match", "layer_decay"}:
            raise ValueError(
                f"param_groups holds {group!r}. Each group must be a dictionary with 'match' (a pattern of "
                "names) or 'layer_decay' (a factor), such as {'match': 'head.*', 'lr': 1e-3}."
            )


def check_sample_weights(args: TrainingArguments) -> None:
    """Refuse weighted sampling without weights, and weights that are negative or not finite."""
    weights = args.sample_weights
    if args.train_sampling_strategy == "weighted" and weights is None:
        raise ValueError(
            "train_sampling_strategy='weighted' needs sample_weights, which is not set. "
            "Set sample_weights to a column of the dataset or to a list with one weight per sample."
        )
    if isinstance(weights, (list, tuple)) and not all(0 <= weight < math.inf for weight in weights):
        raise ValueError(
            "sample_weights holds a weight that is negative or not finite. Give weights of 0 or more."
        )
    if args.train_sampling_strategy != "weighted" and weights is not None:
        warn_once("sample_weights has no effect without train_sampling_strategy='weighted'.")


def check_token_budget(args: TrainingArguments) -> None:
    """Refuse a budget of tokens beside settings that order or cut batches in another way."""
    budget = args.per_device_train_tokens
    if budget is None:
        return
    conflicts = {
        f"train_sampling_strategy={args.train_sampling_strategy!r}": args.train_sampling_strategy != "random",
        "dataloader_drop_last=True": args.dataloader_drop_last,
        "auto_find_batch_size=True": args.auto_find_batch_size,
        "accelerator_config={'split_batches': True}": args.accelerator_config.split_batches,
    }
    given = [name for name, is_given in conflicts.items() if is_given]
    if given:
        raise ValueError(
            f"per_device_train_tokens={budget} cannot go together with {' and '.join(given)}: the budget "
            "decides alone how samples are ordered and cut into batches. Leave the other unset, or batch by "
            "rows: set per_device_train_batch_size, and leave per_device_train_tokens unset."
        )


def check_times(args: TrainingArguments) -> None:
    """Refuse lengths of time that cannot be read."""
    for name in ("save_every", "max_time", "hang_timeout"):
        value = getattr(args, name)
        if value is not None:
            parse_duration(value, name)


def check_module_stats(args: TrainingArguments) -> None:
    """Refuse to measure updates that are made piece by piece while backward runs."""
    name = str(args.optim)
    if args.module_stats_steps and (name in ("lomo", "adalomo") or name.endswith("_layerwise")):
        raise ValueError(
            f"module_stats_steps={args.module_stats_steps} cannot go together with optim={name!r}: it "
            "updates weights inside backward and keeps no gradients, so there is nothing to measure. Choose "
            "another optim, or leave module_stats_steps unset."
        )


CHECKS: tuple[Callable[[TrainingArguments], None], ...] = (
    check_numbers,
    check_choices,
    check_intervals,
    check_state,
    check_precision,
    check_tf32,
    check_best_model,
    check_workers,
    check_param_groups,
    check_sample_weights,
    check_token_budget,
    check_times,
    check_module_stats,
)
