"""Metrics that take batch after batch, as torchmetrics has them, in the place of `compute_metrics`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_streaming(metric: Any) -> bool:
    """Whether this is an object, or a dictionary of objects, with `update` and `compute`."""
    if isinstance(metric, dict):
        return bool(metric) and all(is_streaming(part) for part in metric.values())
    has_both = callable(getattr(metric, "update", None)) and callable(getattr(metric, "compute", None))
    return has_both and not isinstance(metric, (Mapping, type))


def check_is_object(metric: Any) -> None:
    """Refuse the class of a metric where an object of it is meant."""
    parts = metric.values() if isinstance(metric, dict) else [metric]
    for part in parts:
        if isinstance(part, type) and hasattr(part, "update") and hasattr(part, "compute"):
            name = part.__name__
            raise TypeError(f"compute_metrics is the class {name}. Pass an object of it: {name}(...).")


class StreamingMetrics:
    """One metric object, or several by name, fed with every batch of an evaluation and asked once.

    Args:
        metrics: An object with `update(predictions, labels)` and `compute()`, or several of them by name.
        device: Where batches are; objects that can move are moved there.
    """

    def __init__(self, metrics: Any, device: Any = None) -> None:
        self._metrics: dict[str, Any] = metrics if isinstance(metrics, dict) else {_name_of(metrics): metrics}
        for metric in self._metrics.values():
            if callable(getattr(metric, "to", None)) and device is not None:
                metric.to(device)
            if callable(getattr(metric, "reset", None)):
                metric.reset()  # what an evaluation before this one left

    def update(self, predictions: Any, labels: Any) -> None:
        """Take in one batch."""
        for metric in self._metrics.values():
            metric.update(predictions, labels)

    def compute(self) -> dict[str, Any]:
        """The result of each object under its name; those of a dictionary under their own names."""
        results: dict[str, Any] = {}
        for name, metric in self._metrics.items():
            value = metric.compute()
            results.update(value if isinstance(value, Mapping) else {name: value})
        return results


def _name_of(metric: Any) -> str:
    """MulticlassF1Score becomes multiclass_f1_score."""
    name = type(metric).__name__
    words = [
        f"_{letter}" if letter.isupper() and index and not name[index - 1].isupper() else letter
        for index, letter in enumerate(name)
    ]
    return "".join(words).lower()
