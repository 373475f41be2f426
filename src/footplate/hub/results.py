"""From a log history to what a card reports: the results of each set, and a row per evaluation."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

Entries = Sequence[Mapping[str, Any]]

MAX_ROWS = 50  # of the table of evaluations
_SPEED = re.compile(r"(.*_)?(runtime|\w+_per_second|preparation_time|mem_\w+|compilation_time)")
_BESIDE = ("epoch", "step", "total_flos", "num_input_tokens_seen")
_SPLITS = {"eval": "validation", "test": "test", "predict": "test", "train": "train"}


def find_prefixes(history: Entries) -> list[str]:
    """What the metrics of each evaluated set begin with, such as `eval` or `eval_new`."""
    found = {
        key.removesuffix("_runtime"): None for entry in history for key in entry if key.endswith("_runtime")
    }
    if any(key.startswith("eval_") for entry in history for key in entry):
        found.setdefault("eval")  # an evaluation of somebody's own that does not measure its time
    return [prefix for prefix in found if prefix != "train"]


def split_metrics(metrics: Mapping[str, Any], prefixes: Sequence[str]) -> dict[str, dict[str, float]]:
    """Finite numbers by set and by the name of the metric, without times and speeds.

    Args:
        metrics: Values as evaluations name them, such as `eval_loss`.
        prefixes: Of all sets; the longest that fits decides.
    """
    found: dict[str, dict[str, float]] = {}
    for key, value in metrics.items():
        prefix = next((p for p in sorted(prefixes, key=len, reverse=True) if key.startswith(f"{p}_")), None)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if prefix is None or not is_number or key in _BESIDE:
            continue
        name = key[len(prefix) + 1 :]
        if not _SPEED.fullmatch(name) and name != "samples":
            found.setdefault(prefix, {})[name] = value
    return found


def find_results(history: Entries, best_step: int | None = None) -> dict[str, dict[str, float]]:
    """The last result of each set; of the best model, if that is the one that was kept.

    Args:
        history: `state.log_history`.
        best_step: The update whose model was loaded at the end, if one was.
    """
    prefixes = find_prefixes(history)
    end = next((index for index, entry in enumerate(history) if "train_runtime" in entry), len(history))
    results: dict[str, dict[str, float]] = {}
    for index, entry in enumerate(history):
        is_of_kept = best_step is None or entry.get("step") == best_step or index > end
        if is_of_kept:
            results.update(split_metrics(entry, prefixes))
    return results


def find_rows(history: Entries) -> list[dict[str, Any]]:
    """One row per evaluation during training: the last training loss, epoch, step, and each metric."""
    prefixes = find_prefixes(history)
    rows: dict[int, dict[str, Any]] = {}
    loss: Any = "No log"
    for entry in history:
        if "train_runtime" in entry:
            break
        loss = entry.get("loss", loss)
        for prefix, metrics in split_metrics(entry, prefixes).items():
            step = int(entry.get("step", 0))
            start = {"Training Loss": loss, "Epoch": entry.get("epoch", ""), "Step": step}
            row = rows.setdefault(step, start)
            suffix = f" ({set_name(prefix)})" if len(prefixes) > 1 else ""
            for name, value in metrics.items():
                row[("Validation Loss" if name == "loss" else title(name)) + suffix] = value
    return list(rows.values())


def thin(rows: list[dict[str, Any]], count: int = MAX_ROWS) -> list[dict[str, Any]]:
    """At most `count` rows at equal distances, the last one among them."""
    if len(rows) <= count:
        return rows
    return [rows[round(index * (len(rows) - 1) / (count - 1))] for index in range(count)]


def title(name: str) -> str:
    """The name of a metric for people: `exact_match` is Exact Match."""
    return " ".join(part.capitalize() for part in name.split("_"))


def split_of(prefix: str) -> str:
    """The name of the split that a prefix stands for: `eval` is the validation set."""
    return _SPLITS.get(prefix.partition("_")[0], prefix)


def set_name(prefix: str) -> str:
    """The name of a set for people: `eval_new` is new."""
    kind, _, name = prefix.partition("_")
    return name or {"eval": "evaluation", "predict": "test"}.get(kind, kind)
