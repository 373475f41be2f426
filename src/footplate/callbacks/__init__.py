"""Callbacks: they observe a run and control it."""

from typing import TYPE_CHECKING

from footplate.callbacks.base import TrainerCallback
from footplate.callbacks.flow import DefaultFlowCallback
from footplate.callbacks.handler import CallbackHandler
from footplate.callbacks.progress import PrinterCallback, ProgressCallback, default_progress_callback
from footplate.homes import load_on_use

if TYPE_CHECKING:
    from footplate.callbacks.early_stopping import EarlyStoppingCallback
    from footplate.callbacks.notebook import NotebookProgressCallback
    from footplate.samples.callback import SampleCallback
else:  # few runs use them; and the folder of samples imports the base of callbacks from here
    __getattr__ = load_on_use(
        __name__,
        {
            "EarlyStoppingCallback": "footplate.callbacks.early_stopping",
            "NotebookProgressCallback": "footplate.callbacks.notebook",
            "SampleCallback": "footplate.samples.callback",
        },
    )

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
