"""Metric objects that are updated with each batch, such as those of torchmetrics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def is_streaming(metric: Any) -> bool:
    """Whether this is an object, or a dictionary of objects, with `update` and `compute`."""
    if isinstance(metric, dict):
        return bool(metric) and all(is_streaming(part) for part in metric.values())
    has_both = callable(getattr(metric, "update", None)) and callable(getattr(metric, "compute", None))
    return has_both and not isinstance(metric, (Mapping, type))


def check_is_object(metric: Any) -> None:
    """Raise if a metric is a class instead of an object of that class."""
    parts = metric.values() if isinstance(metric, dict) else [metric]
    for part in parts:
        if isinstance(part, type) and hasattr(part, "update") and hasattr(part, "compute"):
            name = part.__name__
            raise TypeError(f"compute_metrics is the class {name}. Pass an object of it: {name}(...).")


class StreamingMetrics:
    """One metric object, or several by name: updated with every batch, and computed once at the end.

    Args:
        metrics: An object with `update(predictions, labels)` and `compute()`, or several of them by name.
        device: Where the batches are; objects that have `to` are moved there.
    """

    def __init__(self, metrics: Any, device: Any = None) -> None:
        self._metrics: dict[str, Any] = metrics if isinstance(metrics, dict) else {_name_of(metrics): metrics}
        for metric in self._metrics.values():
            if callable(getattr(metric, "to", None)) and device is not None:
                metric.to(device)
            if callable(getattr(metric, "reset", None)):
                metric.reset()  # it may hold batches of an earlier evaluation

    @property
    def merges_itself(self) -> bool:
        """Whether the objects join what other ranks gave them, as those of torchmetrics do in `compute`."""
        return all(hasattr(metric, "dist_sync_fn") for metric in self._metrics.values())

    def update(self, predictions: Any, labels: Any) -> None:
        """Add one batch."""
        for metric in self._metrics.values():
            metric.update(predictions, labels)

    def compute(self) -> dict[str, Any]:
        """The result of each object under its name; a result with names of its own keeps them."""
        results: dict[str, Any] = {}
        for name, metric in self._metrics.items():
            value = metric.compute()
            results.update(value if isinstance(value, Mapping) else {name: value})
        return results


def _name_of(metric: Any) -> str:
    """MulticlassF1Score becomes multiclass_f1_score."""
    return re.sub(r"(?<=[^A-Z])(?=[A-Z])", "_", type(metric).__name__).lower()
