"""Brings what users write into one form, and fills in what follows from other settings."""

from __future__ import annotations

import json
import logging
import os
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from footplate.arguments.accelerator_config import AcceleratorConfig
from footplate.arguments.derived import find_accelerator
from footplate.arguments.export import mask
from footplate.arguments.suggest import did_you_mean
from footplate.arguments.values import unquote
from footplate.outputs import (
    DebugOption,
    HubStrategy,
    IntervalStrategy,
    OptimizerNames,
    SaveStrategy,
    SchedulerType,
)

if TYPE_CHECKING:
    from footplate.arguments.fields import TrainingArguments

Choice = TypeVar("Choice", bound=Enum)

# On the command line these come as JSON text. Text of another kind is the path of a file.
JSON_FIELDS = (
    "accelerator_config",
    "deepspeed",
    "fsdp_config",
    "gradient_checkpointing_kwargs",
    "liger_kernel_config",
    "lr_scheduler_kwargs",
    "param_groups",
)


def settle(args: TrainingArguments) -> None:
    """Bring every setting into its one form; doing it twice changes nothing."""
    settle_paths_and_tokens(args)
    settle_json(args)
    settle_choices(args)
    settle_evaluation(args)
    settle_best_model(args)
    settle_reports(args)
    settle_compile(args)
    settle_loaders(args)
    args.accelerator_config = build_accelerator_config(args.accelerator_config)


def settle_paths_and_tokens(args: TrainingArguments) -> None:
    """Fill in and expand the output folder; a masked token, read back from a file, is no token."""
    args.output_dir = os.path.expanduser("trainer_output" if args.output_dir is None else args.output_dir)
    if args.hub_token == mask("hub_token"):
        args.hub_token = None


def settle_json(args: TrainingArguments) -> None:
    """Read the settings that may come as JSON text."""
    for name in JSON_FIELDS:
        value = getattr(args, name)
        if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
            setattr(args, name, read_json(name, value))


def read_json(name: str, text: str) -> Any:
    """The value that JSON text holds."""
    try:
        return unquote(json.loads(text))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{name}={text!r} is not valid JSON: {error}. Give JSON, or a file's path."
        ) from None


def settle_choices(args: TrainingArguments) -> None:
    """Turn the names of strategies, schedules and optimizers into enums."""
    args.eval_strategy = choose("eval_strategy", args.eval_strategy, IntervalStrategy)
    args.logging_strategy = choose("logging_strategy", args.logging_strategy, IntervalStrategy)
    args.save_strategy = choose("save_strategy", args.save_strategy, SaveStrategy)
    args.hub_strategy = choose("hub_strategy", args.hub_strategy, HubStrategy)
    args.lr_scheduler_type = choose("lr_scheduler_type", args.lr_scheduler_type, SchedulerType)
    args.optim = choose("optim", args.optim, OptimizerNames)
    if isinstance(args.include_num_input_tokens_seen, bool):
        args.include_num_input_tokens_seen = "all" if args.include_num_input_tokens_seen else "no"
    debug: Any = args.debug
    if isinstance(debug, bool):  # in 4.0 a switch for the metrics of a TPU
        debug = "tpu_metrics_debug" if debug else ""
    names = debug.split() if isinstance(debug, str) else debug or []
    args.debug = [choose("debug", name, DebugOption) for name in names]


def choose(setting: str, value: Any, choices: type[Choice]) -> Choice:
    """The member of `choices` that `value` names."""
    allowed = [member.value for member in choices]
    if isinstance(value, Enum):  # also one of transformers' own enums
        value = value.value
    if value is False and "no" in allowed:  # YAML reads a bare `no` as false
        value = "no"
    if value not in allowed:
        hint = did_you_mean(value, allowed)
        raise ValueError(f"{setting}={value!r} is not known.{hint} Set {setting} to one of {allowed}.")
    return choices(value)


def settle_evaluation(args: TrainingArguments) -> None:
    """An evaluation strategy means `do_eval`, and evaluates as often as it logs unless told otherwise."""
    if args.eval_strategy != IntervalStrategy.NO:
        args.do_eval = True
    if args.eval_strategy == IntervalStrategy.STEPS and not args.eval_steps:
        args.eval_steps = args.logging_steps
    for name in ("logging_steps", "eval_steps", "save_steps"):
        value = getattr(args, name)
        if isinstance(value, float) and value > 1 and value.is_integer():
            setattr(args, name, int(value))


def settle_best_model(args: TrainingArguments) -> None:
    """Whatever asks for the best model goes by `loss` unless told; of a loss, less is better."""
    needs_metric = (
        args.load_best_model_at_end
        or args.save_strategy == SaveStrategy.BEST
        or args.lr_scheduler_type in (SchedulerType.REDUCE_ON_PLATEAU, SchedulerType.GREEDY)
    )
    if needs_metric and args.metric_for_best_model is None:
        args.metric_for_best_model = "loss"
    if args.greater_is_better is None and args.metric_for_best_model is not None:
        args.greater_is_better = not args.metric_for_best_model.endswith("loss")


def settle_reports(args: TrainingArguments) -> None:
    """`report_to` as a list, empty for none; bars are hidden where warnings are."""
    asked = [args.report_to] if isinstance(args.report_to, str) else list(args.report_to or [])
    args.report_to = [name for name in asked if name != "none"]
    if args.disable_tqdm is None:
        args.disable_tqdm = logging.getLogger("footplate").getEffectiveLevel() > logging.WARNING


def settle_compile(args: TrainingArguments) -> None:
    """Naming a mode or backend of torch.compile switches it on; its backend is inductor unless named."""
    if args.torch_compile_mode is not None or args.torch_compile_backend is not None:
        args.torch_compile = True
    if args.torch_compile and args.torch_compile_backend is None:
        args.torch_compile_backend = "inductor"


def settle_loaders(args: TrainingArguments) -> None:
    """Nothing to pin for the CPU; on Apple devices workers have to fork."""
    if args.use_cpu:
        args.dataloader_pin_memory = False
    if (
        args.dataloader_multiprocessing_context is None
        and args.dataloader_num_workers > 1
        and find_accelerator() == "mps"
    ):
        args.dataloader_multiprocessing_context = "fork"


def build_accelerator_config(value: Any) -> AcceleratorConfig:
    """`accelerator_config` from nothing, a dictionary, a JSON file or an object of its kind."""
    if isinstance(value, type):
        raise ValueError(f"accelerator_config={value!r} is a class. Give an object: {value.__name__}(...).")
    if value is None:
        return AcceleratorConfig()
    if isinstance(value, AcceleratorConfig):
        return value
    if hasattr(value, "to_dict"):  # transformers' class of the same name
        value = value.to_dict()
    return (
        AcceleratorConfig.from_dict(value)
        if isinstance(value, dict)
        else AcceleratorConfig.from_json_file(value)
    )
