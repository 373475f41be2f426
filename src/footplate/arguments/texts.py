"""Small helpers of the API that turn texts into values."""

from __future__ import annotations

import logging
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from typing import Any, NewType

DataClass = NewType("DataClass", Any)  # type: ignore[valid-newtype]
DataClassType = NewType("DataClassType", Any)  # type: ignore[valid-newtype]

log_levels = {
    "detail": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}
trainer_log_levels = {**log_levels, "passive": -1}

_TRUE, _FALSE = ("yes", "true", "t", "y", "1"), ("no", "false", "f", "n", "0")


def string_to_bool(v: str | bool) -> bool:
    """The truth value that a word on a command line means.

    Args:
        v: Such as "yes", "true", "0"; a bool is returned as it is.
    """
    if isinstance(v, bool):
        return v
    if v.lower() in _TRUE + _FALSE:
        return v.lower() in _TRUE
    raise ArgumentTypeError(f"{v!r} is not a truth value. Give one of {', '.join(_TRUE + _FALSE)}.")


def str_to_bool(value: str, to_bool: bool = True) -> int | bool:
    """The truth value that the text of an environment variable means, as a bool or as 0 or 1.

    Args:
        value: Such as "on", "true", "0".
        to_bool: False for 0 or 1.
    """
    word = value.lower()
    if word not in (*_TRUE, *_FALSE, "on", "off"):
        raise ValueError(f"{value!r} is not a truth value. Give one of {', '.join(_TRUE + _FALSE)}, on, off.")
    is_true = word in (*_TRUE, "on")
    return is_true if to_bool else int(is_true)


def make_choice_type_function(choices: Sequence[Any]) -> Callable[[str], Any]:
    """A function from the text of a choice to the choice itself; any other text is returned as it is.

    Args:
        choices: The choices, of any types.
    """
    by_text = {str(choice): choice for choice in choices}
    return lambda text: by_text.get(text, text)
