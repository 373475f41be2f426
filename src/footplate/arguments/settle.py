"""Convert each setting to one form, and fill in defaults that depend on other settings."""

from __future__ import annotations

import dataclasses
import logging
import os
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from footplate.arguments.accelerator_config import AcceleratorConfig
from footplate.arguments.checks import find_use_of_best
from footplate.arguments.derived import find_accelerator
from footplate.arguments.export import mask
from footplate.arguments.notices import warn_once
from footplate.arguments.suggest import check_word
from footplate.arguments.values import find_kind, read_json, read_number
from footplate.directions import seems_to_fall
from footplate.outputs import (
    DebugOption,
    HubStrategy,
    IntervalStrategy,
    OptimizerNames,
    SaveStrategy,
    SchedulerType,
)
from footplate.words import read_flag

if TYPE_CHECKING:
    from footplate.arguments.fields import TrainingArguments

Choice = TypeVar("Choice", bound=Enum)

# These may be given as JSON text, as on the command line; any other text is the path of a file.
JSON_FIELDS = (
    *("accelerator_config", "fsdp_config", "deepspeed"),
    *("activation_checkpointing_kwargs", "gradient_checkpointing_kwargs", "lr_scheduler_kwargs"),
    *("liger_kernel_config", "param_groups"),
)
ENUMS: dict[str, type[Enum]] = {
    "eval_strategy": IntervalStrategy,
    "logging_strategy": IntervalStrategy,
    "save_strategy": SaveStrategy,
    "hub_strategy": HubStrategy,
    "lr_scheduler_type": SchedulerType,
    "optim": OptimizerNames,
}


def settle(args: TrainingArguments) -> None:
    """Convert every setting to one form; a second call changes nothing."""
    settle_paths_and_tokens(args)
    settle_numbers(args)
    settle_json(args)
    settle_recompute(args)
    settle_choices(args)
    settle_evaluation(args)
    settle_best_model(args)
    settle_reports(args)
    settle_compile(args)
    settle_loaders(args)
    args.accelerator_config = build_accelerator_config(args.accelerator_config)
    settle_accumulation(args)


def settle_paths_and_tokens(args: TrainingArguments) -> None:
    """Fill in and expand the output folder; remove a masked token that came from a file."""
    args.output_dir = os.path.expanduser("trainer_output" if args.output_dir is None else args.output_dir)
    if args.hub_token == mask("hub_token"):
        args.hub_token = None


def settle_numbers(args: TrainingArguments) -> None:
    """Read numbers that are given as text, as YAML gives `1e-3`, and say so in one notice."""
    read = []
    for name, hint in find_types(type(args)).items():
        value = getattr(args, name)
        if not isinstance(value, str) or not is_numeric(hint):
            continue
        try:
            number = read_number(value, whole="float" not in str(hint))
        except ValueError as problem:
            raise ValueError(f"{name}={value!r} {problem}. Set {name} to a number.") from None
        setattr(args, name, number)
        read.append(f"{name}={value!r} as {number!r}")
    if read:
        warn_once(
            f"Numbers were given as text, and are read as numbers: {', '.join(read)}. Leave out the quotes; "
            "in YAML, 1e-3 is text and 1.0e-3 is a number."
        )


@cache
def find_types(cls: type[TrainingArguments]) -> dict[str, Any]:
    """The types of the fields, as they were written: transformers' parser changes `Field.type`."""
    try:
        hints = get_type_hints(cls)
    except NameError:  # a class inside a function, with types as text
        hints = {}
    return {field.name: hints.get(field.name, field.type) for field in dataclasses.fields(cls)}


def is_numeric(hint: Any) -> bool:
    """Whether the type of a field allows numbers and no text; hints are text where they were not resolved."""
    if isinstance(hint, str):
        words = {word.strip() for word in hint.removeprefix("Optional[").removesuffix("]").split("|")}
        return bool(words & {"int", "float"}) and words <= {"int", "float", "None"}
    members = find_kind(hint).members
    return bool(members) and set(members) <= {int, float}


def settle_json(args: TrainingArguments) -> None:
    """Read the settings that may be given as JSON text."""
    for name in dict.fromkeys((*args._VALID_DICT_FIELDS, *JSON_FIELDS)):
        value = getattr(args, name, None)
        if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
            try:
                setattr(args, name, read_json(value, dict if value.lstrip().startswith("{") else list))
            except ValueError as error:
                raise ValueError(f"{name}: {error} Give JSON, or the path of a file.") from None


def settle_recompute(args: TrainingArguments) -> None:
    """Give `activation_checkpointing` and its older name one value; the newer name wins over the older."""
    for ending in ("", "_kwargs"):
        new, old = f"activation_checkpointing{ending}", f"gradient_checkpointing{ending}"
        if getattr(args, new) is None:
            setattr(args, new, getattr(args, old))
        setattr(args, old, getattr(args, new))
    if args.activation_checkpointing is None:
        args.activation_checkpointing = args.gradient_checkpointing = False


def settle_choices(args: TrainingArguments) -> None:
    """Turn the names of strategies, schedules and optimizers into enums, and replace older words."""
    for name, choices in ENUMS.items():
        setattr(args, name, choose(name, getattr(args, name), choices))
    if args.loss_weighting == "default":
        warn_once("loss_weighting='default' is an older word and taken as 'batches'.")
        args.loss_weighting = "batches"
    if isinstance(args.include_num_input_tokens_seen, bool):
        args.include_num_input_tokens_seen = "all" if args.include_num_input_tokens_seen else "no"
    rehearsal: Any = args.rehearsal
    if isinstance(rehearsal, bool):  # YAML reads a bare `off` as false
        args.rehearsal = "quick" if rehearsal else "off"
    debug: Any = args.debug
    if isinstance(debug, bool):  # in 4.0 this was a switch for the metrics of a TPU
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
    check_word(setting, value, allowed)
    return choices(value)


def settle_evaluation(args: TrainingArguments) -> None:
    """Turn `do_eval` on if there is an evaluation strategy; `eval_steps` defaults to `logging_steps`."""
    if args.eval_strategy != IntervalStrategy.NO:
        args.do_eval = True
    if args.eval_strategy == IntervalStrategy.STEPS and not args.eval_steps:
        args.eval_steps = args.logging_steps
    for name in ("logging_steps", "eval_steps", "save_steps"):
        value = getattr(args, name)
        if isinstance(value, float) and value > 1 and value.is_integer():
            setattr(args, name, int(value))


def settle_best_model(args: TrainingArguments) -> None:
    """If the best model is needed, choose it by `loss` unless a metric is set; a smaller loss is better."""
    if find_use_of_best(args) is not None and args.metric_for_best_model is None:
        args.metric_for_best_model = "loss"
    if args.greater_is_better is None and args.metric_for_best_model is not None:
        name = args.metric_for_best_model
        args.greater_is_better = not name.endswith("loss")
        if args.greater_is_better and seems_to_fall(name):
            warn_once(
                f"metric_for_best_model={name!r} counts as better when it is greater, since its name does "
                "not end in 'loss', and it looks like a metric that should fall. Set "
                "greater_is_better=False, or greater_is_better=True to turn this warning off."
            )


def settle_reports(args: TrainingArguments) -> None:
    """Make `report_to` a list, empty for none, and hide progress bars if warnings are hidden."""
    asked = [args.report_to] if isinstance(args.report_to, str) else list(args.report_to or [])
    args.report_to = [name for name in asked if name != "none"]
    is_train_job = os.getenv("KUBEFLOW_TRAINER_SERVER_URL") is not None
    if is_train_job and "kubeflow" not in args.report_to and not read_flag("DISABLE_KUBEFLOW_INTEGRATION"):
        args.report_to.append("kubeflow")  # the job's controller shows the progress
    if args.disable_tqdm is None:
        args.disable_tqdm = logging.getLogger("footplate").getEffectiveLevel() > logging.WARNING


def settle_compile(args: TrainingArguments) -> None:
    """Turn torch.compile on if its mode or backend is set; the default backend is inductor."""
    if args.torch_compile_mode is not None or args.torch_compile_backend is not None:
        args.torch_compile = True
    if args.torch_compile and args.torch_compile_backend is None:
        args.torch_compile_backend = "inductor"


def settle_loaders(args: TrainingArguments) -> None:
    """Turn pinned memory off on the CPU; start workers by fork on an Apple GPU."""
    if args.use_cpu:
        args.dataloader_pin_memory = False
    must_fork = args.dataloader_num_workers > 1 and find_accelerator() == "mps"
    if must_fork and args.dataloader_multiprocessing_context is None:
        args.dataloader_multiprocessing_context = "fork"


def build_accelerator_config(value: Any) -> AcceleratorConfig:
    """The AcceleratorConfig for None, a dictionary, a JSON file, or an object of either library's class."""
    if isinstance(value, type):
        raise ValueError(f"accelerator_config={value!r} is a class. Give an object: {value.__name__}(...).")
    if isinstance(value, AcceleratorConfig):
        return value
    if hasattr(value, "to_dict"):  # transformers' class of the same name
        value = value.to_dict()
    if value is None or isinstance(value, dict):
        return AcceleratorConfig.from_dict(value or {})
    return AcceleratorConfig.from_json_file(value)


def settle_accumulation(args: TrainingArguments) -> None:
    """Take the micro-batches per update from the settings of Accelerate, if they are set there alone."""
    num_steps = (args.accelerator_config.gradient_accumulation_kwargs or {}).get("num_steps")
    if num_steps is None or num_steps == args.gradient_accumulation_steps:
        return
    if args.gradient_accumulation_steps != 1:
        raise ValueError(
            f"gradient_accumulation_steps={args.gradient_accumulation_steps} and num_steps={num_steps} in "
            "accelerator_config.gradient_accumulation_kwargs contradict each other. Set one of them."
        )
    args.gradient_accumulation_steps = num_steps
