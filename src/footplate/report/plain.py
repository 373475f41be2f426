"""Keys and values of a journal as a page can show them."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

MAX_TEXT = 1000


def find_prefixes(logs: Mapping[str, Any]) -> list[str]:
    """What the keys of an evaluation begin with, told by its own runtime being among them."""
    starts = [key.removesuffix("_runtime") for key in logs if key.endswith("_runtime")]
    return [start for start in starts if f"{start}_samples_per_second" in logs]


@lru_cache(maxsize=10_000)
def split_key(key: str, prefixes: tuple[str, ...]) -> tuple[str, str]:
    """The split a key belongs to and the metric it names: `eval_f1` is f1 of eval."""
    for prefix in sorted({*prefixes, "train"}, key=len, reverse=True):  # longest first: eval_b_ before eval_
        match = re.match(rf"{re.escape(prefix)}[_/](.+)", key, flags=re.DOTALL)
        if match:
            return prefix, match.group(1)
    return "train", key


def within(blocks: list[dict[str, Any]], num_characters: int) -> list[dict[str, Any]]:
    """So many of the blocks, evenly chosen and with the last, as their text allows."""
    sizes = [sum(len(str(value)) for row in block["rows"] for value in row.values()) for block in blocks]
    every = max(1, math.ceil(sum(sizes) / max(num_characters, 1)))
    return [*blocks[:-1][::every], *blocks[-1:]]


def plain_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    """A row of samples, its texts not too long."""
    return {str(k): shorten(v) if isinstance(v, str) else plain(v) for k, v in row.items()}


def shorten(text: str) -> str:
    """The text, or as much of its beginning as is shown."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def as_mapping(value: Any) -> Mapping[str, Any]:
    """The value where it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}  # the journal is JSON


def as_number(value: Any) -> float | None:
    """A finite number, or None."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and abs(value) <= sys.float_info.max else None


def plain(value: Any) -> Any:
    """The value as strict JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    is_plain = value is None or isinstance(value, (bool, int, str))
    return value if is_plain or (isinstance(value, float) and math.isfinite(value)) else str(value)
