"""What listens to a run and steers it."""

from footplate.callbacks.base import TrainerCallback
from footplate.callbacks.early_stopping import EarlyStoppingCallback
from footplate.callbacks.flow import DefaultFlowCallback
from footplate.callbacks.handler import CallbackHandler
from footplate.callbacks.notebook import NotebookProgressCallback
from footplate.callbacks.progress import PrinterCallback, ProgressCallback, default_progress_callback
from footplate.callbacks.samples import SampleCallback

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
