"""Callbacks: they observe a run and control it."""

from typing import TYPE_CHECKING, Any

from footplate.callbacks.base import TrainerCallback
from footplate.callbacks.early_stopping import EarlyStoppingCallback
from footplate.callbacks.flow import DefaultFlowCallback
from footplate.callbacks.handler import CallbackHandler
from footplate.callbacks.notebook import NotebookProgressCallback
from footplate.callbacks.progress import PrinterCallback, ProgressCallback, default_progress_callback

if TYPE_CHECKING:
    from footplate.samples.callback import SampleCallback

__all__ = [
    "CallbackHandler",
    "DefaultFlowCallback",
    "EarlyStoppingCallback",
    "NotebookProgressCallback",
    "PrinterCallback",
    "ProgressCallback",
    "SampleCallback",
    "TrainerCallback",
    "default_progress_callback",
]


def __getattr__(name: str) -> Any:
    """`SampleCallback`, loaded when asked for: its folder imports the base of callbacks from here."""
    if name == "SampleCallback":
        from footplate.samples.callback import SampleCallback

        return SampleCallback
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
