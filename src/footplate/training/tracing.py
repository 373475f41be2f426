"""Trace a model for evaluation: its forward as a TorchScript graph, for as long as torch has that."""

from __future__ import annotations

import copy
import logging
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from footplate.batch import MAPPING
from footplate.training.batches import call_forward

logger = logging.getLogger(__name__)


class TracedModel(nn.Module):
    """A traced forward; it takes only the inputs that it was traced with, so not the items of a loss.

    Args:
        traced: What `torch.jit` made of the model.
        names: The inputs by name; None if they have no names.
        wide: Whether results in half precision become single precision, as the model's own do.
    """

    def __init__(self, traced: Any, names: frozenset[str] | None, wide: bool) -> None:
        super().__init__()
        self.traced = traced
        self.names, self.wide = names, wide

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The results for a batch."""
        if self.names is not None:
            named = {name: value for name, value in named.items() if name in self.names}
        outputs = self.traced(*inputs, **named)
        if not self.wide:
            return outputs
        from accelerate.utils import convert_to_fp32

        return convert_to_fp32(outputs)


def is_wanted(args: Any) -> bool:
    """Whether the settings ask for it, under its name of 4.x."""
    return bool(getattr(args, "jit_mode_eval", False))


def trace(model: nn.Module, inputs: Any, autocast: AbstractContextManager[Any] | None = None) -> nn.Module:
    """The model traced with a batch; where that fails, a warning, and the model itself.

    Args:
        model: The model, in evaluation mode.
        inputs: A batch on the model's device.
        autocast: The context that forward runs in with mixed precision.
    """
    names = frozenset(inputs) if isinstance(inputs, MAPPING) else None
    example: dict[str, Any] = {"example_kwarg_inputs": dict(inputs)} if names is not None else {}
    if names is None:
        example["example_inputs"] = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    plain = copy.copy(model)
    if "_original_forward" in vars(plain):  # Accelerate hides the parameters of forward behind a wrapper
        plain.forward = vars(plain).pop("_original_forward")
    try:
        with torch.no_grad(), autocast or nullcontext():
            traced = torch.jit.trace(  # type: ignore[no-untyped-call]
                plain, **example, strict=False, check_trace=False
            )
            found = TracedModel(torch.jit.freeze(traced), names, wide=autocast is not None)
            call_forward(found, inputs)  # what it cannot compute, it must not be asked for later
        return found
    except (RuntimeError, TypeError, ValueError, NameError, LookupError, AttributeError) as error:
        reason = str(error).strip().split("\n")[0][:200]  # torch prints all tensors
        logger.warning("jit_mode_eval has no effect: torch cannot trace %s: %s", type(model).__name__, reason)
        return model
