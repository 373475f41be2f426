"""Find the layer where numbers stop being finite: what every layer took and gave, up to the first one."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import nn

HEADING = f"{'abs min':8} {'abs max':8} metadata"
MARGIN = " " * 17  # as wide as the two numbers


def get_abs_min_max(var: torch.Tensor, ctx: str) -> str:
    """The smallest and the largest absolute value of a tensor, and what it is, in a line.

    Args:
        var: The tensor.
        ctx: What it is.
    """
    absolute = var.abs()
    return f"{absolute.min():8.2e} {absolute.max():8.2e} {ctx}"


def detect_overflow(var: torch.Tensor, ctx: str) -> bool:
    """Whether a tensor has values that are not finite; prints which kind.

    Args:
        var: The tensor.
        ctx: What it is, for the line that is printed.
    """
    found = {"nans": torch.isnan(var), "infs": torch.isinf(var)}
    kinds = [kind for kind, where in found.items() if where.any().item()]
    for kind in kinds:
        print(f"{ctx} has {kind}")
    return bool(kinds)


class DebugUnderflowOverflow:
    """Stops at the first layer with a value that is not finite, and prints the layers before it.

    It looks at every weight and activation of every forward pass, so training is slow while it is there.

    Args:
        model: The model to look at.
        max_frames_to_save: How many layers to print.
        trace_batch_nums: Batches to print whole, from 0; these are not stopped at.
        abort_after_batch_num: Stop after this batch.
    """

    def __init__(
        self,
        model: nn.Module,
        max_frames_to_save: int = 21,
        trace_batch_nums: Collection[int] | None = None,
        abort_after_batch_num: int | None = None,
    ) -> None:
        self.model = model
        self.trace_batch_nums = list(trace_batch_nums or ())
        self.abort_after_batch_num = abort_after_batch_num
        self.frames: deque[str] = deque(maxlen=max_frames_to_save)
        self.batch_number = 0
        self.detected_overflow = False
        self.module_names = {module: name for name, module in model.named_modules()}
        for module in model.modules():
            module.register_forward_hook(self.forward_hook)

    def forward_hook(self, module: nn.Module, input: Any, output: Any) -> None:
        """Note what a layer took and gave; print and stop if there is a reason to."""
        number = self.batch_number
        frame = "\n".join(self._describe(module, input, output))
        if module is self.model:  # the outermost one is the last of its batch
            self.batch_number += 1
        if number in self.trace_batch_nums:
            print(frame)
        elif self.detected_overflow:
            self.frames.append(frame)
            self._stop_at_overflow(number)
        else:
            self.frames.append(frame)
        if self.abort_after_batch_num is not None and self.batch_number > self.abort_after_batch_num:
            raise ValueError(
                f"DebugUnderflowOverflow stops after {self.batch_number} batches, as "
                f"abort_after_batch_num={self.abort_after_batch_num} asks for."
            )

    def _stop_at_overflow(self, number: int) -> None:
        print(f"\nDetected inf/nan during batch_number={number}")
        print(f"Last {len(self.frames)} forward frames:\n{HEADING}\n" + "\n".join(self.frames))
        raise ValueError(
            "DebugUnderflowOverflow found a value that is not finite and stops. The layers up to it are "
            "printed above: the smallest and largest absolute values of their weights, inputs and outputs."
        )

    def _describe(self, module: nn.Module, input: Any, output: Any) -> Iterator[str]:
        """The lines of a layer: its name, then weights, inputs and outputs."""
        yield f"{MARGIN} {self.module_names[module]} {type(module).__name__}"
        for name, parameter in module.named_parameters(recurse=False):
            yield self._describe_value(parameter, name)
        for what, values in (("input", input), ("output", output)):
            for place, value in _walk(values):
                yield self._describe_value(value, f"{what}{place}")

    def _describe_value(self, value: Any, name: str) -> str:
        if not isinstance(value, torch.Tensor):
            return f"{'None' if value is None else 'not a tensor':>17} {name}"
        if not value.numel():
            return f"{'empty':>17} {name}"
        self.detected_overflow |= detect_overflow(value, name)
        return get_abs_min_max(value, name)


def _walk(values: Any) -> Iterator[tuple[str, Any]]:
    """The values inside tuples, with their places such as `[0][1]`."""
    if not isinstance(values, tuple):
        yield "", values
        return
    for number, value in enumerate(values):
        for place, inner in _walk(value):
            yield f"[{number}]{place}", inner
