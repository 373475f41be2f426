"""Words that mean true or false, and sizes, in settings and in environment variables."""

from __future__ import annotations

import os
import re

TRUE_WORDS = ("1", "true", "t", "yes", "y", "on")
FALSE_WORDS = ("0", "false", "f", "no", "n", "off")
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
UNITS |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


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


def parse_bytes(text: str) -> int | None:
    """The bytes that a size such as "2GB" or "512MiB" means; None for any other text."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([KMGT]?i?)B?\s*", text, re.IGNORECASE | re.ASCII)
    unit = UNITS.get(found[2].capitalize()) if found is not None else None
    if found is None or unit is None:
        return None
    return int(float(found[1]) * unit) if "." in found[1] else int(found[1]) * unit  # exact if it is whole


def format_bytes(num_bytes: float) -> str:
    """A size such as `1.25 GB`: three digits, in units of a thousand."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= 0.9995 * size:
            value = num_bytes / size
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"
    return f"{num_bytes:.0f} B"


def keep_end(text: str, length: int) -> str:
    """The text, cut at its beginning to so many characters: long names differ at their ends."""
    return text if len(text) <= length else "…" + text[len(text) - length + 1 :]
