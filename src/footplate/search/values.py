"""Set the values of a trial in the settings of a run: fields, and names with dots inside fields."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

# read when the Trainer is made: another value later would have no effect, or half of one
SET_AT_THE_START = (
    *("output_dir", "bf16", "fp16", "fsdp", "fsdp_config", "deepspeed", "use_cpu", "report_to"),
    *("label_names", "disable_tqdm", "ddp_backend", "accelerator_config", "report", "show_samples"),
)


def set_values(args: Any, values: Mapping[str, Any]) -> list[str]:
    """Set each value in the settings; return the names that no setting has.

    Args:
        args: The settings, a dataclass.
        values: Values by name: `learning_rate`, `optim_args.eps`, `lr_scheduler_kwargs.num_cycles`,
            `param_groups.0.lr`, or `param_groups.head.*.lr` for the group whose `match` is `head.*`.
    """
    unknown = []
    for name, value in values.items():
        field, _, rest = name.partition(".")
        if field in SET_AT_THE_START:
            raise ValueError(
                f"{field} is read when the Trainer is made, so a trial cannot change it. Search once with "
                f"each value of {field}, in a Trainer and an output_dir of its own."
            )
        if not hasattr(args, field):
            unknown.append(name)
        elif rest:
            setattr(args, field, set_inside(field, copy.deepcopy(getattr(args, field)), rest, value))
        else:
            setattr(args, field, as_kind_of(getattr(args, field), value))
    return unknown


def as_kind_of(old: Any, value: Any) -> Any:
    """A value as the kind that the setting has now: a trial may draw 3.0 for a whole number."""
    if old is None or isinstance(value, type(old)) or isinstance(old, (list, dict)):
        return value
    if isinstance(old, bool) and isinstance(value, str):
        return value.strip().lower() in ("1", "true", "yes", "on")
    try:
        return type(old)(value)
    except (TypeError, ValueError):
        return value  # the checks of the settings say what is wrong with it


def set_inside(field: str, old: Any, path: str, value: Any) -> Any:
    """A setting with one value inside it changed."""
    if field == "optim_args":
        return set_option(old or "", path, value)
    if isinstance(old, list):
        place, _, key = path.rpartition(".")
        find_group(field, old, place)[key] = value
        return old
    if old is not None and not isinstance(old, dict):
        raise ValueError(f"{field}.{path} names a value inside {field}, and {field}={old!r} holds none.")
    return {**(old or {}), path: value}


def set_option(text: str, name: str, value: Any) -> str:
    """`name=value` texts with one of them changed or added."""
    options = dict(part.split("=", 1) for part in text.replace(" ", "").split(",") if "=" in part)
    return ",".join(f"{key}={entry}" for key, entry in {**options, name: value}.items())


def find_group(field: str, groups: list[Any], place: str) -> dict[str, Any]:
    """The group at an index, or with this `match`; refuses another place."""
    if place.isdecimal() and int(place) < len(groups):
        found: dict[str, Any] = groups[int(place)]
        return found
    for group in groups:
        if place and place in (group.get("match"), group.get("name")):
            named: dict[str, Any] = group
            return named
    known = [group.get("match") or index for index, group in enumerate(groups)]
    raise ValueError(
        f"{field} has no group {place!r}; it has {known}. Name one as {field}.0.lr or by its match, such as "
        f"{field}.head.*.lr, and set {field} in TrainingArguments."
    )


def suggest_names(args: Any, unknown: list[str]) -> str:
    """Names that the user may have meant, for a warning."""
    known = [entry.name for entry in fields(args)]
    close = [match for name in unknown for match in difflib.get_close_matches(name.split(".")[0], known, 1)]
    return f" Did you mean {', '.join(close)}?" if close else ""
