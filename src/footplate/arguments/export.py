"""The settings as plain values: for JSON, for trackers, for people."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from footplate.arguments.fields import TrainingArguments


def to_dict(args: TrainingArguments) -> dict[str, Any]:
    """Every setting that the constructor takes, as plain values; tokens are masked."""
    names = [field.name for field in dataclasses.fields(args) if field.init]
    return {name: mask(name) if name.endswith("_token") else plain(getattr(args, name)) for name in names}


def mask(name: str) -> str:
    """The text that replaces a token in every file and log."""
    return f"<{name.upper()}>"


def plain(value: Any) -> Any:
    """`value` in types that JSON has; anything else stays as it is."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    for method in ("to_dict", "to_json"):  # AcceleratorConfig and GenerationConfig; ParallelismConfig
        if hasattr(value, method) and not isinstance(value, type):
            return getattr(value, method)()
    # compared by name, so that this file does not import torch
    return str(value).removeprefix("torch.") if type(value).__name__ == "dtype" else value


def to_json_string(args: TrainingArguments) -> str:
    """The settings as JSON text; tokens are masked."""
    return json.dumps(args.to_dict(), indent=2, default=str)


def to_sanitized_dict(args: TrainingArguments) -> dict[str, Any]:
    """The settings and batch sizes as booleans, numbers and text only, for trackers."""
    values = args.to_dict()
    values["train_batch_size"] = args.train_batch_size
    values["eval_batch_size"] = args.eval_batch_size
    plain_types = (bool, int, float, str)
    return {name: value if type(value) in plain_types else str(value) for name, value in values.items()}


def describe(args: TrainingArguments) -> str:
    """The settings, one per line, sorted by name; tokens are masked."""
    shown = {field.name: getattr(args, field.name) for field in dataclasses.fields(args)}
    shown |= {name: mask(name) for name in shown if name.endswith("_token")}
    lines = "".join(f"{name}={value},\n" for name, value in sorted(shown.items()))
    return f"{type(args).__name__}(\n{lines})"
