"""Keys and values of a journal in the form that a page shows."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

MAX_TEXT = 1000
SPLITS = ("eval", "test")


def find_prefixes(logs: Collection[str]) -> list[str]:
    """The prefixes of evaluations in these logs: an evaluation always has a runtime and a speed."""
    starts = [key.removesuffix("_runtime") for key in logs if key.endswith("_runtime")]
    return [start for start in starts if f"{start}_samples_per_second" in logs]


@lru_cache(maxsize=10_000)
def split_key(key: str, prefixes: tuple[str, ...]) -> tuple[str, str]:
    """The split and the metric of a key: `eval_f1` is f1 of eval."""
    for prefix in sorted({*prefixes, "train"}, key=len, reverse=True):  # longest first: eval_b_ before eval_
        match = re.match(rf"{re.escape(prefix)}[_/](.+)", key, flags=re.DOTALL)
        if match:
            return prefix, match.group(1)
    return "train", key


@lru_cache(maxsize=1000)  # the logs of a run have few sets of keys
def split_keys(keys: tuple[str, ...], told: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """The split and the metric of each key of a log.

    Args:
        keys: All keys of the log, since they tell which prefixes it has.
        told: Prefixes of evaluations that are known besides.
    """
    known = tuple(sorted({*SPLITS, *told, *find_prefixes(keys)}))
    return {key: split_key(key, known) for key in keys}


def choose_blocks(blocks: list[dict[str, Any]], num_characters: int) -> list[dict[str, Any]]:
    """Blocks at equal distances, and the last one, with about `num_characters` of text in all."""
    sizes = [sum(len(str(value)) for row in block["rows"] for value in row.values()) for block in blocks]
    every = max(1, math.ceil(sum(sizes) / max(num_characters, 1)))
    return [*blocks[:-1][::every], *blocks[-1:]]


def choose_rows(rows: list[Mapping[Any, Any]], num_rows: int) -> list[Mapping[Any, Any]]:
    """At most `num_rows` rows in their order; those that were wrong are kept before the others."""
    wrong = [index for index, row in enumerate(rows) if row.get("correct") is False]
    right = [index for index, row in enumerate(rows) if row.get("correct") is not False]
    return [rows[index] for index in sorted([*wrong, *right][:num_rows])]


def plain_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    """A row of samples, with long texts shortened."""
    return {str(k): shorten(v) if isinstance(v, str) else plain(v) for k, v in row.items()}


def shorten(text: str, length: int = MAX_TEXT) -> str:
    """The text, cut to so many characters."""
    return text if len(text) <= length else text[: length - 1] + "…"


def quote_path(parts: Iterable[str]) -> str:
    """The address of a file beside or below a page.

    Each part is quoted and it begins with a folder, so no name becomes another kind of address.
    """
    return "/".join([".", *(quote(part, safe="", errors="surrogateescape") for part in parts)])


def as_mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is a dict, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_number(value: Any) -> float | None:
    """The value if it is a finite number, else None."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and abs(value) <= sys.float_info.max else None


def numbers_in(value: Any) -> dict[str, float]:
    """The finite numbers of a dict, none if it is none."""
    largest = sys.float_info.max
    return {
        key: number
        for key, number in as_mapping(value).items()
        if (abs(number) <= largest if type(number) is float else as_number(number) is not None)
    }


def plain(value: Any) -> Any:
    """The value in the form of strict JSON, which has no NaN and no infinity."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    is_plain = value is None or isinstance(value, (bool, int, str))
    return value if is_plain or (isinstance(value, float) and math.isfinite(value)) else str(value)
