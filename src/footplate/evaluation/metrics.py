"""The numbers that an evaluation reports: their names, and how to print, save and compare them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from footplate.comm import map_nested


def prefix_keys(metrics: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The metrics with `prefix_` before every key; keys that had it already come first."""
    start = f"{prefix}_"
    prefixed = {key: value for key, value in metrics.items() if key.startswith(start)}
    for key, value in metrics.items():
        if not key.startswith(start):
            prefixed[start + key] = value
    return prefixed


def plain_numbers(metrics: Any) -> Any:
    """The same structure with numpy scalars and one-element tensors as Python numbers.

    Args:
        metrics: A value, or a nested list, tuple or mapping of them; other leaves pass as they are.
    """
    return map_nested(_plain_number, metrics)


denumpify_detensorize = plain_numbers


def _plain_number(value: Any) -> Any:
    is_scalar = (
        isinstance(value, np.generic)
        or (isinstance(value, np.ndarray) and value.ndim == 0)
        or (isinstance(value, torch.Tensor) and value.numel() == 1)
    )
    return value.item() if is_scalar else value


def check_metrics(metrics: Any) -> dict[str, Any]:
    """What `compute_metrics` returned; raises if it is not a dictionary."""
    if not isinstance(metrics, Mapping):
        raise TypeError(
            f"compute_metrics returned {metrics!r}. It must return a dictionary of names and numbers."
        )
    return dict(metrics)


def preprocess(function: Callable[[Any, Any], Any] | None, logits: Any, labels: Any) -> Any:
    """The logits for the metrics: what `preprocess_logits_for_metrics` returns, if there is one."""
    return logits if logits is None or function is None else function(logits, labels)


def speed_metrics(
    split: str,
    start_time: float,
    num_samples: float | None = None,
    num_steps: int | None = None,
    num_tokens: int | None = None,
) -> dict[str, float]:
    """The runtime since `start_time`, and the samples, steps and tokens per second.

    Args:
        split: What the keys begin with: "train", "eval", "test".
        start_time: `time.time()` when the work began.
        num_samples: Samples processed.
        num_steps: Steps done.
        num_tokens: Tokens processed.
    """
    elapsed_seconds = time.time() - start_time
    result = {f"{split}_runtime": round(elapsed_seconds, 4)}
    if elapsed_seconds == 0:
        return result
    counts = {"samples": num_samples, "steps": num_steps, "tokens": num_tokens}
    for name, count in counts.items():
        if count is not None:
            result[f"{split}_{name}_per_second"] = round(count / elapsed_seconds, 3)
    return result


def metrics_format(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics in readable units: megabytes, hours and minutes, four decimals.

    Args:
        metrics: What train, evaluate or predict returned.
    """
    return {key: _readable(key, value) for key, value in metrics.items()}


def _readable(key: str, value: Any) -> Any:
    if isinstance(value, str):
        return value
    if "_mem_" in key:
        return f"{int(value) >> 20}MB"
    if "_runtime" in key:
        hundredths = int(abs(value - int(value)) * 100)
        return f"{timedelta(seconds=int(value))}.{hundredths:02d}"
    if key == "total_flos":
        return f"{int(value) >> 30}GF"
    return round(value, 4) if isinstance(value, float) else value


def format_metrics_table(split: str, metrics: Mapping[str, Any]) -> str:
    """One aligned line per metric, sorted, under a heading."""
    cells = {key: str(value) for key, value in metrics_format(metrics).items()}
    key_width = max(map(len, cells), default=0)
    value_width = max(map(len, cells.values()), default=0)
    lines = [f"  {key:<{key_width}} = {cells[key]:>{value_width}}" for key in sorted(cells)]
    return "\n".join([f"***** {split} metrics *****", *lines])


def save_metrics_file(
    folder: str | os.PathLike[str], split: str, metrics: Mapping[str, Any], combined: bool = True
) -> None:
    """Write `<split>_results.json` and, if `combined`, merge the metrics into `all_results.json`."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    plain = plain_numbers(dict(metrics))
    _write_json(Path(folder, f"{split}_results.json"), plain)
    if combined:
        all_results = Path(folder, "all_results.json")
        earlier = json.loads(all_results.read_text(encoding="utf-8")) if all_results.exists() else {}
        _write_json(all_results, {**earlier, **plain})


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=4, sort_keys=True), encoding="utf-8")


def read_metric(metrics: Mapping[str, Any], name: str) -> float:
    """The value of `metric_for_best_model=name`, which may be given with or without `eval_`."""
    key = name if name.startswith("eval_") else f"eval_{name}"
    if key not in metrics:
        raise ValueError(
            f"metric_for_best_model={name!r} is not among what evaluation gives: {sorted(metrics)}. "
            f"Name one of these, or return {key.removeprefix('eval_')!r} from compute_metrics."
        )
    return float(metrics[key])


class Best(NamedTuple):
    """The best value of a metric, and whether the newest one is it."""

    value: float | None
    is_new: bool


def find_best(new: float, best: float | None, greater_is_better: bool) -> Best:
    """The best of `new` and the best so far; NaN is never better, and without any the best is infinite."""
    if best is None:
        best = float("-inf") if greater_is_better else float("inf")
    is_new = new > best if greater_is_better else new < best
    return Best(new if is_new else best, is_new)


def preview_best(
    metrics: Mapping[str, Any], name: str | None, best: float | None, greater_is_better: bool
) -> Best:
    """What the best will be after an evaluation; unchanged if it does not give the metric."""
    key = f"eval_{str(name).removeprefix('eval_')}"
    if name is None or key not in metrics:
        return Best(best, False)
    return find_best(float(metrics[key]), best, greater_is_better)
