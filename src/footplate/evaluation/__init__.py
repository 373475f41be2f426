"""What one evaluation collects, and the numbers that it reports."""

from typing import TYPE_CHECKING

from footplate.evaluation.memory import TrainerMemoryTracker
from footplate.evaluation.metrics import denumpify_detensorize, metrics_format, speed_metrics
from footplate.homes import load_on_use

if TYPE_CHECKING:
    from footplate.evaluation.classes import ClassSummary, summarize_classes
    from footplate.evaluation.container import EvalLoopContainer
else:  # what a start has no use for
    __getattr__ = load_on_use(
        __name__,
        {
            "ClassSummary": "footplate.evaluation.classes",
            "EvalLoopContainer": "footplate.evaluation.container",
            "summarize_classes": "footplate.evaluation.classes",
        },
    )

__all__ = [
    "ClassSummary",
    "EvalLoopContainer",
    "TrainerMemoryTracker",
    "denumpify_detensorize",
    "metrics_format",
    "speed_metrics",
    "summarize_classes",
]
