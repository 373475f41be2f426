"""Lengths of time as people write them: `30min`, `7h50m`, `90s`, `1d2h`, or seconds."""

from __future__ import annotations

import math
import re
from numbers import Real
from typing import Any

UNITS = {
    "d": 86400.0,
    "h": 3600.0,
    "m": 60.0,
    "s": 1.0,
    **{"day": 86400.0, "days": 86400.0, "hour": 3600.0, "hours": 3600.0},
    **{"min": 60.0, "mins": 60.0, "minute": 60.0, "minutes": 60.0},
    **{"sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0},
}
_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([a-z]+)\s*")
_NUMBER = re.compile(r"\d+(\.\d*)?|\.\d+")


def parse_duration(value: str | float, name: str = "duration") -> float:
    """Seconds from a number of seconds or from text such as `"7h50m"`.

    Args:
        value: A number of seconds, or numbers with units, the largest first, each unit once.
        name: The setting that errors name.
    """
    seconds = _read(value)
    if seconds is None or not 0 < seconds < math.inf:
        raise ValueError(
            f"{name}={value!r} is not a length of time. Set {name} to seconds above 0, such as 90, or to "
            "days, hours, minutes and seconds, the largest unit first: '90s', '30min', '7h50m', '1d2h'."
        )
    return seconds


def _read(value: Any) -> float | None:
    """The seconds that `value` says, None where it says none."""
    if not isinstance(value, str):
        return None if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    text = value.strip().lower()
    if _NUMBER.fullmatch(text):
        return float(text)
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text) or any(unit not in UNITS for _, unit in parts):
        return None
    scales = [UNITS[unit] for _, unit in parts]
    if scales != sorted(set(scales), reverse=True):  # "50m7h" and "1h1h" are slips more often than meant
        return None
    return sum(float(number) * scale for (number, _), scale in zip(parts, scales, strict=True))
