"""Take over arguments of transformers' class, or of a library's subclass of it."""

from __future__ import annotations

import dataclasses
from typing import Any

from footplate.arguments.fields import TrainingArguments
from footplate.arguments.notices import warn_once
from footplate.arguments.old_names import OLD_NAMES

# What the other class sets in its constructor, and ours finds when it is asked.
_DERIVED = ("distributed_state", "mixed_precision", "_setup_devices", "deepspeed_plugin", "fsdp_plugin_args")


def adopt(args: Any) -> Any:
    """Footplate's arguments with the values of `args`, if it is of transformers' class; else `args` itself.

    What a library's subclass adds stays readable: its fields, and whatever else was set on the object.
    """
    if isinstance(args, TrainingArguments) or not is_original(args):
        return args
    from footplate.arguments.seq2seq import Seq2SeqTrainingArguments  # 150 fields: 6 ms

    cls = Seq2SeqTrainingArguments if hasattr(args, "predict_with_generate") else TrainingArguments
    own = {field.name for field in dataclasses.fields(cls) if field.init}
    given = {field.name for field in dataclasses.fields(args)}
    adopted = cls(**{name: getattr(args, name) for name in own & given if is_meant(args, name)})
    left = {name: value for name, value in vars(args).items() if name not in own and name not in _DERIVED}
    for name, value in left.items():
        if name not in OLD_NAMES:  # an old name of 4.x has become one of the fields above, or has no effect
            vars(adopted)[name] = value
        elif value != OLD_NAMES[name].default:
            setattr(adopted, name, value)
    theirs = type(args)
    warn_once(
        f"`args` is a {theirs.__module__}.{theirs.__qualname__}; its values were taken over into "
        f"footplate.{cls.__name__}, which takes the same names."
    )
    return adopted


def is_original(args: Any) -> bool:
    """Whether the class of `args` is transformers' TrainingArguments or derived from it."""
    if not dataclasses.is_dataclass(args) or isinstance(args, type):
        return False
    names = [(base.__name__, base.__module__.split(".")[0]) for base in type(args).__mro__]
    return ("TrainingArguments", "transformers") in names


def is_meant(args: Any, name: str) -> bool:
    """Whether a value was chosen: its constructor fills in settings of engines that were not asked for."""
    return name != "fsdp_config" or bool(args.fsdp)
