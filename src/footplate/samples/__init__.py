"""Samples: rows with the model's predictions, in readable form, as a table and as a file."""

from footplate.samples.callback import SampleCallback
from footplate.samples.predictor import Predictor

__all__ = ["Predictor", "SampleCallback"]
