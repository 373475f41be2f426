"""The settings of a run on disk, as a plain dictionary."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from footplate.checkpoint.files import Folder, load_plain, save_plain

TRAINING_ARGS_NAME = "training_args.bin"


def save_arguments(arguments: Mapping[str, Any], folder: Folder) -> None:
    """Write the settings; a value that is not plain is written as text."""
    save_plain(_plain(arguments), Path(folder, TRAINING_ARGS_NAME))


def load_arguments(folder: Folder) -> dict[str, Any]:
    """The settings that `save_arguments` wrote; raises if the file is missing or holds Python objects."""
    path = Path(folder, TRAINING_ARGS_NAME)
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} has no {TRAINING_ARGS_NAME}: the settings of the run were not saved with it."
        )
    values = load_plain(path)
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds a {type(values).__name__}; a dictionary of settings was expected.")
    return values


def _plain(value: Any) -> Any:
    """`value` as None, booleans, numbers, text, lists and dictionaries only."""
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, np.generic):
        return value.item()
    if value is None or type(value) in (bool, int, float, str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(item) for item in value), key=str)
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
