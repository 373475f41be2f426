"""One micro-batch, forward and backward, with tensors that take no memory."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_iter

from footplate import rng
from footplate.batch import outputs_without_loss
from footplate.comm import map_nested
from footplate.planning.meter import Largest, MemoryMeter, Peaks, Place

logger = logging.getLogger(__name__)

Step = Callable[[nn.Module, Any], Any]  # gives the loss of a batch, or the loss and the model's outputs
REAL_LIMIT = 2 * 10**9  # bytes of weights up to which a model may be run for real


@dataclass(frozen=True)
class Trial:
    """What one micro-batch takes besides weights, optimizer and finished gradients."""

    peaks: Mapping[Place, Peaks] = field(default_factory=dict)
    batch_bytes: int = 0
    output_bytes: int = 0  # of the predictions for this batch
    largest: Largest = field(default_factory=Largest)
    problem: str = ""  # why nothing could be measured; the peaks are empty then


def try_micro_batch(
    model: nn.Module,
    batch: Any,
    step: Step,
    device: torch.device,
    units: list[nn.Module] | None = None,
    precision: torch.dtype | None = None,
) -> Trial:
    """Count forward and backward of a batch; the model, its gradients and generators stay as they were.

    Args:
        model: The model; its weights may be on the meta device.
        batch: One micro-batch, of real tensors.
        step: Gives the loss.
        device: Where the run will be.
        units: Parts of the model to count apart.
        precision: Of autocast, None without it.
    """
    attempts: list[Callable[[], Trial]] = [
        lambda: _try_fake(model, batch, step, device, units or [], precision),
        lambda: _try_real(model, batch, step, device, units or [], precision),
    ]
    reasons = []
    for attempt in attempts:
        try:
            return attempt()
        except Exception as error:  # a model may do anything; the rest of the plan is of use without this
            reason = f"{type(error).__name__}: {error}".strip()
            reasons.append((reason.splitlines() or [""])[0])
            logger.debug("A trial of one micro-batch failed.", exc_info=True)
    return Trial(batch_bytes=count_bytes(batch), problem=" / ".join(dict.fromkeys(reasons)))


def _try_fake(
    model: nn.Module, batch: Any, step: Step, device: torch.device, units: list[nn.Module], precision: Any
) -> Trial:
    """The trial with tensors that have a shape and no memory."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def make(value: torch.Tensor) -> torch.Tensor:
        with mode:
            return torch.empty(value.shape, dtype=value.dtype, device=device)

    def place(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        with mode:
            return mode.from_tensor(value).to(device)

    with replaced_weights(model, make) as weights:
        return _measure(model, weights, map_nested(place, batch), step, units, precision, device, mode)


def _try_real(
    model: nn.Module, batch: Any, step: Step, device: torch.device, units: list[nn.Module], precision: Any
) -> Trial:
    """The trial for real, with copies of the weights: some code asks for values, which fakes do not have."""
    num_bytes = sum(value.nbytes for value in model.parameters())
    if num_bytes > REAL_LIMIT:
        raise ValueError(f"{num_bytes / 1e9:.1f} GB of weights are too many to try the model for real")

    def make(value: torch.Tensor) -> torch.Tensor:
        if value.is_meta:
            return torch.zeros(value.shape, dtype=value.dtype, device=device)
        return value.detach().to(device, copy=True)

    def place(value: Any) -> Any:
        return value.to(device) if isinstance(value, torch.Tensor) else value

    with rng.scoped(), replaced_weights(model, make) as weights:
        return _measure(
            model, weights, map_nested(place, batch), step, units, precision, device, nullcontext()
        )


def _measure(
    model: nn.Module,
    weights: list[torch.Tensor],
    batch: Any,
    step: Step,
    units: list[nn.Module],
    precision: torch.dtype | None,
    device: torch.device,
    mode: AbstractContextManager[Any],
) -> Trial:
    """Count one forward and one backward of a model whose weights may be changed."""
    batch_bytes = count_bytes(batch)
    autocast = torch.autocast(device.type, precision) if precision is not None else nullcontext()
    with ExitStack() as stack:
        stack.enter_context(in_training(model))
        stack.enter_context(mode)
        meter = MemoryMeter(weights, find_tensors(batch))
        stack.enter_context(watched_units(units, meter))
        for weight in weights:
            if weight.requires_grad:
                hook: Any = weight.register_post_accumulate_grad_hook(meter.mark_gradient)  # type: ignore[no-untyped-call]
                stack.callback(hook.remove)
        stack.enter_context(meter)
        with autocast:
            answer = step(model, batch)
        loss, outputs = answer if isinstance(answer, tuple) else (answer, None)
        del answer
        predictions = outputs_without_loss(outputs, (), has_loss=True) if outputs is not None else ()
        output_bytes = count_bytes(predictions)
        del outputs, predictions
        meter.place = ("backward", None)
        loss.sum().backward()
    return Trial(dict(meter.peaks), batch_bytes, output_bytes, meter.largest)


# ---- parts ----


@contextmanager
def replaced_weights(
    model: nn.Module, make: Callable[[torch.Tensor], torch.Tensor]
) -> Iterator[list[torch.Tensor]]:
    """Give the model other parameters and buffers for the block; those that are shared stay shared."""
    before = [
        (module, name, value)
        for module in model.modules()
        for values in (module._parameters, module._buffers)
        for name, value in values.items()
        if value is not None
    ]
    made: dict[int, torch.Tensor] = {}
    try:
        for module, name, value in before:
            if id(value) not in made:
                new = make(value)
                is_parameter = isinstance(value, nn.Parameter)
                made[id(value)] = nn.Parameter(new, value.requires_grad) if is_parameter else new
            setattr(module, name, made[id(value)])  # recurrent layers keep a second list, and update it here
        yield list(made.values())
    finally:
        for module, name, value in before:
            setattr(module, name, value)


@contextmanager
def in_training(model: nn.Module) -> Iterator[None]:
    """Put the model into training mode for the block."""
    before = [(module, module.training) for module in model.modules()]
    model.train()
    try:
        yield
    finally:
        for module, is_training in before:
            module.training = is_training


@contextmanager
def watched_units(units: list[nn.Module], meter: MemoryMeter) -> Iterator[None]:
    """Tell the meter which unit of the model is at work."""
    with ExitStack() as stack:
        for number, unit in enumerate(units):
            begin, end = _unit_hooks(number, meter)
            stack.callback(unit.register_forward_pre_hook(begin).remove)
            stack.callback(unit.register_forward_hook(end).remove)
        yield


def _unit_hooks(number: int, meter: MemoryMeter) -> tuple[Callable[..., None], Callable[..., None]]:
    def begin(module: nn.Module, inputs: Any) -> None:
        meter.place = (meter.place[0], number)

    def begin_backward(gradient: Any) -> None:
        meter.place = ("backward", number)

    def end(module: nn.Module, inputs: Any, outputs: Any) -> None:
        if meter.place[0] == "backward":  # the unit is computed again, and its backward follows
            return
        meter.place = ("forward", None)
        for leaf in tree_iter(outputs):
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                leaf.register_hook(begin_backward)  # type: ignore[no-untyped-call]

    return begin, end


def call_for_loss(model: nn.Module, batch: Any) -> Any:
    """Loss and outputs of a model that computes its own loss, as models of the Hugging Face API do."""
    outputs = model(**batch) if isinstance(batch, Mapping) else model(*batch)
    loss = outputs["loss"] if isinstance(outputs, Mapping) else outputs
    if isinstance(loss, (tuple, list)):
        loss = loss[0]
    if not isinstance(loss, torch.Tensor):
        names = list(inspect.signature(model.forward).parameters)
        raise ValueError(f"{type(model).__name__} gave no loss. Pass step=...; its forward takes {names}")
    return loss, outputs


def count_bytes(value: Any) -> int:
    """The bytes of all tensors in nested values."""
    return sum(tensor.nbytes for tensor in find_tensors(value))


def find_tensors(value: Any) -> list[torch.Tensor]:
    """All tensors in nested values, such as a batch of any kind of mapping."""
    found: list[torch.Tensor] = []
    map_nested(lambda leaf: found.append(leaf) if isinstance(leaf, torch.Tensor) else None, value)
    return found
