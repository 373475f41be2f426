"""Words that mean true or false, in settings and in environment variables."""

from __future__ import annotations

import os

TRUE_WORDS = ("1", "true", "t", "yes", "y", "on")
FALSE_WORDS = ("0", "false", "f", "no", "n", "off")


def is_true(text: str) -> bool:
    """Whether `text` is a word for true; any other text counts as false."""
    return text.lower() in TRUE_WORDS


def read_flag(variable: str) -> bool:
    """Whether an environment variable holds a word for true."""
    return is_true(os.environ.get(variable, ""))


def string_to_bool(text: str | bool) -> bool:
    """The bool that a word stands for; any other text raises ValueError."""
    if isinstance(text, bool):
        return text
    if text.lower() not in TRUE_WORDS + FALSE_WORDS:
        raise ValueError(f"{text!r} is neither true nor false: use true or false, yes or no, 1 or 0")
    return is_true(text)
