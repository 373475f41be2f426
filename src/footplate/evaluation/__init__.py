"""What one evaluation collects, and the numbers that it reports."""

from typing import TYPE_CHECKING

from footplate.evaluation.memory import TrainerMemoryTracker
from footplate.evaluation.metrics import denumpify_detensorize, metrics_format, speed_metrics
from footplate.homes import load_on_use

if TYPE_CHECKING:
    from footplate.evaluation.container import EvalLoopContainer
else:  # nothing of ours needs it, and it brings what collects predictions
    __getattr__ = load_on_use(__name__, {"EvalLoopContainer": "footplate.evaluation.container"})

__all__ = [
    "EvalLoopContainer",
    "TrainerMemoryTracker",
    "denumpify_detensorize",
    "metrics_format",
    "speed_metrics",
]
