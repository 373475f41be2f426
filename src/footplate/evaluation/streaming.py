"""Metric objects that are updated with each batch, such as those of torchmetrics."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


def is_streaming(metric: Any) -> bool:
    """Whether this is an object, or a dictionary of objects, with `update` and `compute`."""
    if isinstance(metric, dict):
        return bool(metric) and all(is_streaming(part) for part in metric.values())
    has_both = callable(getattr(metric, "update", None)) and callable(getattr(metric, "compute", None))
    return has_both and not isinstance(metric, (Mapping, type))


def check_is_object(metric: Any) -> None:
    """Raise if a metric is a class instead of an object of that class, or a dictionary of something else."""
    parts = metric.values() if isinstance(metric, dict) else [metric]
    for part in parts:
        if isinstance(part, type) and hasattr(part, "update") and hasattr(part, "compute"):
            name = part.__name__
            raise TypeError(f"compute_metrics is the class {name}. Pass an object of it: {name}(...).")
    if isinstance(metric, dict) and metric and not is_streaming(metric) and not callable(metric):
        raise TypeError(
            f"compute_metrics is a dictionary ({', '.join(map(str, metric))}), and not all of its values are "
            "objects with update and compute. Pass one function; to measure each evaluation set in another "
            "way, let it look at prediction.dataset_name."
        )


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
        self._merging = [name for name, metric in self._metrics.items() if merges_itself(metric)]

    @property
    def all_merge(self) -> bool:
        """Whether all objects join by themselves what those of other ranks were given."""
        return len(self._merging) == len(self._metrics)

    @property
    def some_merge(self) -> bool:
        """Whether some object does so: then every rank must call `compute`."""
        return bool(self._merging)

    def stop_merging(self) -> None:
        """Let no object exchange anything: each rank will be given the rows of all.

        Objects of torchmetrics that keep rows fail, or end the process, if a rank was given none.
        """
        self._merging = []

    def update(self, predictions: Any, labels: Any, merging: bool | None = None) -> None:
        """Add one batch.

        Args:
            predictions: The model's answers.
            labels: The right ones.
            merging: Only to the objects that merge themselves, or only to the others; None for all.
        """
        for name, metric in self._metrics.items():
            if merging is None or (name in self._merging) == merging:
                metric.update(predictions, labels)

    def compute(self) -> dict[str, Any]:
        """The result of each object under its name; a result with names of its own keeps them."""
        results: dict[str, Any] = {}
        for name, metric in self._metrics.items():
            with contextlib.nullcontext() if name in self._merging else without_exchange(metric):
                value = metric.compute()
            results.update(value if isinstance(value, Mapping) else {name: value})
        return results


def merges_itself(metric: Any) -> bool:
    """Whether an object joins in `compute` what other ranks gave it, as those of torchmetrics do."""
    if hasattr(metric, "dist_sync_fn"):
        return bool(getattr(metric, "sync_on_compute", True))
    parts = list(metric.values()) if callable(getattr(metric, "values", None)) else []
    return bool(parts) and all(map(merges_itself, parts))  # a collection of such objects


@contextmanager
def without_exchange(metric: Any) -> Iterator[None]:
    """Let an object of torchmetrics, or each of a collection, exchange nothing inside the block."""
    parts = metric.values() if callable(getattr(metric, "values", None)) else [metric]
    changed = [part for part in parts if hasattr(part, "distributed_available_fn")]
    before = [part.distributed_available_fn for part in changed]
    try:
        for part in changed:
            part.distributed_available_fn = _is_never_distributed
        yield
    finally:
        for part, function in zip(changed, before, strict=True):
            part.distributed_available_fn = function


def _is_never_distributed() -> bool:
    return False


def _name_of(metric: Any) -> str:
    """MulticlassF1Score becomes multiclass_f1_score."""
    return re.sub(r"(?<=[^A-Z])(?=[A-Z])", "_", type(metric).__name__).lower()
