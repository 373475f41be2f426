"""Settings that this version refuses, and settings that have no effect: one row each, with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from footplate.arguments.headings import Help
from footplate.arguments.notices import warn_once

if TYPE_CHECKING:
    from footplate.arguments.fields import TrainingArguments

Class = TypeVar("Class", bound=type[Any])

REFUSED_HEADING = "Refused in this version"
NO_EFFECT_HEADING = "Accepted without effect"

# Remove a row when its setting gets an effect: help, warning and tests are made from these tables.
REFUSED: dict[str, str] = {"deepspeed": "DeepSpeed", "debug": "the debug mode"}

NO_EFFECT: dict[str, str] = {
    "trackio_static_space_id": "this version makes no static Trackio Space",
    "eval_use_gather_object": "predictions of other processes are always gathered as objects",
    "eval_accumulation_steps": "predictions leave the device after each batch",
    "enable_jit_checkpoint": "SIGTERM always saves a checkpoint first",
    "accelerator_config.use_seedable_sampler": "the order of samples always follows from the seed",
}


def mark_unsupported(cls: Class) -> Class:
    """Put the fields of both tables under their headings in the help; apply it before `@dataclass`."""
    for name, subject in REFUSED.items():
        _describe(cls, name, REFUSED_HEADING, f"Refused: {subject} is not in this version.")
    for name, reason in NO_EFFECT.items():
        if "." not in name:
            _describe(cls, name, NO_EFFECT_HEADING, f"No effect: {reason}.")
    return cls


def _describe(cls: type[Any], name: str, heading: str, help: str) -> None:
    field = vars(cls)[name]
    field.metadata = {**field.metadata, "help": Help(help, field.metadata["help"].section, heading)}


def check_supported(args: TrainingArguments) -> None:
    """Refuse settings that this version does not support."""
    for name, subject in REFUSED.items():
        value = getattr(args, name)
        if value not in (None, False, "", []):
            raise NotImplementedError(
                f"{name}={value!r}: {subject} is not in this version of footplate. Leave {name} unset."
            )


def warn_of_no_effect(args: TrainingArguments) -> None:
    """Warn, once per process, of each setting without effect that is not at its default."""
    for path, reason in NO_EFFECT.items():
        *owner, name = path.split(".")
        holder: Any = getattr(args, owner[0]) if owner else args
        if getattr(holder, name) != type(holder).__dataclass_fields__[name].default:
            warn_once(f"{path} has no effect: {reason}.")
