"""Read lengths of time: `30min`, `7h50m`, `90s`, `1d2h`, or seconds."""

from __future__ import annotations

import math
import re
from numbers import Real
from typing import Any

UNITS = {
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
}
_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([a-z]+)\s*")
_NUMBER = re.compile(r"\d+(\.\d*)?|\.\d+")


def parse_duration(value: str | float, name: str = "duration") -> float:
    """Seconds from a number of seconds or from text such as `"7h50m"`.

    Args:
        value: A number of seconds, or numbers with units, the largest first, each unit once.
        name: The setting to name in errors.
    """
    seconds = _read(value)
    if seconds is None or not 0 < seconds < math.inf:
        raise ValueError(
            f"{name}={value!r} is not a length of time. Set {name} to seconds above 0, such as 90, or to "
            "days, hours, minutes and seconds, the largest unit first: '90s', '30min', '7h50m', '1d2h'."
        )
    return seconds


def _read(value: Any) -> float | None:
    """The seconds in `value`, None if it cannot be read."""
    if not isinstance(value, str):
        return None if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    text = value.strip().lower()
    if _NUMBER.fullmatch(text):
        return float(text)
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text) or any(unit not in UNITS for _, unit in parts):
        return None
    scales = [UNITS[unit] for _, unit in parts]
    if scales != sorted(set(scales), reverse=True):  # "50m7h" and "1h1h" are probably typing errors
        return None
    return sum(float(number) * scale for (number, _), scale in zip(parts, scales, strict=True))
