"""What one evaluation gathers, and the numbers it reports."""

from footplate.evaluation.collector import Collector
from footplate.evaluation.container import EvalLoopContainer
from footplate.evaluation.memory import TrainerMemoryTracker
from footplate.evaluation.metrics import (
    denumpify_detensorize,
    format_metrics_table,
    is_better,
    metrics_format,
    plain_numbers,
    prefix_keys,
    read_metric,
    save_metrics_file,
    speed_metrics,
)

__all__ = [
    "Collector",
    "EvalLoopContainer",
    "TrainerMemoryTracker",
    "denumpify_detensorize",
    "format_metrics_table",
    "is_better",
    "metrics_format",
    "plain_numbers",
    "prefix_keys",
    "read_metric",
    "save_metrics_file",
    "speed_metrics",
]
