"""What one evaluation collects, and the numbers that it reports."""

from footplate.evaluation.container import EvalLoopContainer
from footplate.evaluation.memory import TrainerMemoryTracker
from footplate.evaluation.metrics import denumpify_detensorize, metrics_format, speed_metrics

__all__ = [
    "EvalLoopContainer",
    "TrainerMemoryTracker",
    "denumpify_detensorize",
    "metrics_format",
    "speed_metrics",
]
