"""The heading under which trackers show a log key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

SPLITS = ("eval", "test")


def add_headings(logs: Mapping[str, Any], prefixes: Iterable[str] = SPLITS) -> dict[str, Any]:
    """The logs with a heading before each key: `eval_loss` becomes `eval/loss`, `loss` becomes `train/loss`.

    Args:
        logs: What was logged, by key.
        prefixes: The prefixes of metrics of evaluations and predictions.
    """
    known = sorted({*SPLITS, *prefixes} - {""}, key=len, reverse=True)  # longest first: eval_b_ before eval_
    return {_with_heading(str(key), known): value for key, value in logs.items()}


def rewrite_logs(d: Mapping[str, Any]) -> dict[str, Any]:
    """The logs under `eval/`, `test/` and `train/`: the older name of `add_headings`.

    Args:
        d: What was logged, by key.
    """
    return add_headings(d)


def _with_heading(key: str, prefixes: Iterable[str]) -> str:
    if "/" in key:
        return key
    for prefix in prefixes:
        if key.startswith(f"{prefix}_"):
            return f"{prefix}/{key.removeprefix(f'{prefix}_')}"
    return f"train/{key}"
