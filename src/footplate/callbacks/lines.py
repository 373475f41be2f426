"""Logs as lines: `key=value` pairs for programs, aligned and short for people."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from footplate.callbacks.facts import format_duration

PLAIN_VALUE = re.compile(r"[!#-<>-~]+")  # printable ASCII without space, quote and equals sign
NOT_FOR_KEYS = re.compile(r"[^!#-<>-~]")
WIDEST = 100  # columns of a line for people, on a terminal of any width
WIDTHS = {"learning_rate": 9}  # columns of a value from the first line on; others have 7
NOT_SHOWN = ("epoch", "total_flos")  # the epoch has its own place
SHORT_NAMES = {"grad_norm": "grad", "learning_rate": "lr"}
NOT_FOR_PEOPLE = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time")

# ---- for programs ----


def format_line(values: Mapping[str, Any], max_str_len: int = 100) -> str:
    """One line of `key=value` pairs; a value that is not plain ASCII without spaces is a JSON string."""
    return " ".join(
        [f"{_format_key(key)}={_format_value(value, max_str_len)}" for key, value in values.items()]
    )


@lru_cache(maxsize=10_000)  # every log of a run has the same keys
def _format_key(key: str) -> str:
    return NOT_FOR_KEYS.sub("_", key)


def _format_value(value: Any, max_str_len: int) -> str:
    if type(value) is not float and type(value) is not int and hasattr(value, "tolist"):
        value = value.tolist()  # host sync, where a tensor was logged
    if isinstance(value, float):
        return f"{value:.6g}"
    if type(value) is int:
        return str(value)
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    if len(text) > max_str_len:
        text = text[:max_str_len] + "..."
    return text if PLAIN_VALUE.fullmatch(text) else json.dumps(text)


# ---- for people ----


class Columns:
    """Formats the logs of one run so that equal names stand below each other."""

    def __init__(self, max_str_len: int = 100) -> None:
        self.max_str_len = max_str_len
        self._widths: dict[tuple[str, str], int] = {}

    def format(
        self,
        step: int,
        max_steps: int,
        logs: Mapping[str, Any],
        prefixes: Iterable[str] = (),
        width: int = WIDEST,
    ) -> str:
        """A log as a line of at most `width` columns; what does not fit continues below, indented.

        Args:
            step: Updates that are done.
            max_steps: Updates of the run; 0 outside training.
            logs: What was logged.
            prefixes: What the keys of evaluations begin with.
            width: Columns that there are.
        """
        where = f"{step:>{len(str(max_steps))}}/{max_steps}" if max_steps else f"step {step}"
        kind, values = split_prefix(logs, prefixes)
        cells = [self._pad(kind, "", kind.replace("_", " "))] if kind else []
        epoch = logs.get("epoch")
        if isinstance(epoch, (int, float)):
            cells.insert(0, f"epoch {epoch:.2f}")
        for key, value in values.items():
            if key not in NOT_FOR_PEOPLE:
                name = SHORT_NAMES.get(key, key)
                text = format_short(value, self.max_str_len).ljust(WIDTHS.get(key, 7))
                cells.append(self._pad(kind, key, f"{name} {text}"))
        seconds = values.get("runtime")
        if isinstance(seconds, (int, float)):
            cells.append(f"in {format_duration(seconds)}")
        return fold(f"  {where}", cells, min(width, WIDEST))

    def _pad(self, kind: str, key: str, text: str) -> str:
        size = self._widths[kind, key] = max(len(text), self._widths.get((kind, key), 0))
        return text.ljust(size)


def split_prefix(logs: Mapping[str, Any], prefixes: Iterable[str]) -> tuple[str, dict[str, Any]]:
    """The prefix that all keys share, and the values without it; an empty prefix if they share none."""
    keys = [key for key in logs if key not in NOT_SHOWN]
    for prefix in sorted({*prefixes, "train"}, key=len, reverse=True):
        if keys and all(key.startswith(f"{prefix}_") for key in keys):
            return prefix, {key[len(prefix) + 1 :]: logs[key] for key in keys}
    return "", {key: logs[key] for key in keys}


def format_short(value: Any, max_str_len: int = 100) -> str:
    """A value with four digits; text on one line, cut where it is long."""
    if hasattr(value, "tolist"):
        value = value.tolist()  # host sync, where a tensor was logged
    if isinstance(value, float):
        is_handy = value == 0 or 1e-3 <= abs(value) < 1e4 or not math.isfinite(value)
        return f"{value:#.4g}".rstrip(".") if is_handy and value else f"{value:.3e}" if value else "0"
    return _format_value(value, max_str_len)


def fold(first: str, cells: Iterable[str], width: int) -> str:
    """Cells behind `first`, two spaces apart; one that does not fit begins a new line below the cells."""
    lines, indent = [first], " " * len(first)
    for cell in cells:
        if len(lines[-1]) + 2 + len(cell.rstrip()) > width and lines[-1] not in (first, indent):
            lines.append(indent)
        room = max(width - len(indent) - 2, 1)
        shown = cell if len(cell.rstrip()) <= room else cell[: max(room - 3, 1)] + "..."
        lines[-1] += f"  {shown}"
    return "\n".join(line.rstrip() for line in lines)
