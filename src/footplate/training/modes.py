"""Switch model and optimizer between training and evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


def enter_training(model: nn.Module, optimizer: Any) -> None:
    """Switch to training; some optimizers keep one set of weights for training and one for evaluation."""
    model.train()
    if callable(getattr(optimizer, "train", None)):
        optimizer.train()


def enter_evaluation(model: nn.Module, optimizer: Any) -> None:
    """Switch to evaluation, with the weights that the optimizer keeps for it."""
    model.eval()
    if callable(getattr(optimizer, "eval", None)):
        optimizer.eval()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """In the block, no module draws random numbers or updates its statistics; then all is as before."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
