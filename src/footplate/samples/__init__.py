"""Samples: rows with the model's predictions, in readable form, as a table and as a file."""

from typing import TYPE_CHECKING

from footplate.homes import load_on_use
from footplate.samples.predictor import Predictor

if TYPE_CHECKING:
    from footplate.samples.callback import SampleCallback
else:  # every run has a predictor, few show samples
    __getattr__ = load_on_use(__name__, {"SampleCallback": "footplate.samples.callback"})

__all__ = ["Predictor", "SampleCallback"]
