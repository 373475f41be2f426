"""What an optimizer keeps for each parameter, found by stepping the real class on small ones."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._pytree import tree_iter

from footplate import rng
from footplate.planning.meter import MemoryMeter

# No two sizes of a shape are equal, so that a size in the state tells which dimension it follows. Each has
# over 4096 values: optimizers of 8 bits keep smaller tensors in 32.
SHAPES = {1: (4099,), 2: (67, 71), 3: (13, 17, 23), 4: (7, 11, 13, 5), 5: (3, 5, 7, 11, 4)}
Shape = Sequence[int]


class StateTensor(NamedTuple):
    """One tensor of the state of a parameter: the dimensions it follows, None if it follows their product."""

    dimensions: tuple[int, ...] | None
    bytes_per_value: float

    def num_bytes(self, shape: Shape) -> int:
        """Its bytes for a parameter of this shape."""
        sizes = shape if self.dimensions is None else [shape[position] for position in self.dimensions]
        return math.ceil(math.prod(sizes) * self.bytes_per_value)


class OptimizerCost(NamedTuple):
    """What an optimizer takes: its state by number of dimensions and dtype, and its temporary results."""

    rules: Mapping[tuple[int, torch.dtype], list[StateTensor]]
    temporaries_of_all: float  # per byte of all parameters
    temporaries_of_largest: float  # per byte of the largest parameter

    def state_bytes(self, shape: Shape, dtype: torch.dtype) -> int:
        """The state of one parameter."""
        rank, _ = key = rule_key(shape, dtype)
        sizes = (*shape[: rank - 1], math.prod(shape[rank - 1 :]))  # a scalar is a vector of one value
        return sum(tensor.num_bytes(sizes) for tensor in self.rules[key])

    def temporary_bytes(self, sizes: Sequence[int]) -> int:
        """The temporary results of one step on parameters of so many bytes each."""
        return int(self.temporaries_of_all * sum(sizes) + self.temporaries_of_largest * max(sizes, default=0))


def measure_optimizer(
    optimizer_class: Any,
    options: Mapping[str, Any],
    parameters: Iterable[torch.Tensor],
    device: torch.device | None = None,
) -> OptimizerCost:
    """Step the optimizer on small parameters and count.

    Args:
        optimizer_class: The class.
        options: Its arguments besides the parameters.
        parameters: Those of the model that are trained; only their number of dimensions and dtype matter.
        device: Where the run will be: on an accelerator, torch's optimizers update all parameters at once.
    """
    options = dict(options)
    takes_foreach = "foreach" in inspect.signature(optimizer_class).parameters
    if device is not None and device.type != "cpu" and takes_foreach and not options.get("fused"):
        options.setdefault("foreach", True)
    keys = dict.fromkeys(rule_key(parameter.shape, parameter.dtype) for parameter in parameters)
    with rng.scoped():
        rules = {
            (rank, dtype): _find_rule(optimizer_class, options, SHAPES[rank], dtype) for rank, dtype in keys
        }
        if not rules:
            return OptimizerCost(rules, 0.0, 0.0)
        rank, dtype = max(keys, key=lambda key: key[0])
        of_one = _measure_temporaries(optimizer_class, options, SHAPES[rank], dtype, count=1)
        of_eight = _measure_temporaries(optimizer_class, options, SHAPES[rank], dtype, count=8)
    if of_eight > 2 * of_one:  # it grows with the number of parameters: all of them are updated at once
        return OptimizerCost(rules, of_eight / 8, 0.0)
    return OptimizerCost(rules, 0.0, of_one)


def rule_key(shape: Shape, dtype: torch.dtype) -> tuple[int, torch.dtype]:
    """Parameters with the same key have states of the same form."""
    return min(max(len(shape), 1), max(SHAPES)), dtype


def _make_stepped(
    optimizer_class: Any, options: Mapping[str, Any], shape: Shape, dtype: torch.dtype, count: int
) -> tuple[Any, list[nn.Parameter]]:
    """An optimizer after its first step, with the gradients for the next."""
    parameters = [nn.Parameter(torch.zeros(*shape, dtype=dtype)) for _ in range(count)]
    optimizer = optimizer_class(parameters, **options)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return optimizer, parameters


def _find_rule(
    optimizer_class: Any, options: Mapping[str, Any], shape: Shape, dtype: torch.dtype
) -> list[StateTensor]:
    optimizer, (parameter,) = _make_stepped(optimizer_class, options, shape, dtype, count=1)
    tensors = [leaf for leaf in tree_iter(optimizer.state[parameter]) if isinstance(leaf, torch.Tensor)]
    return [_follow(tensor, shape) for tensor in tensors]


def _follow(tensor: torch.Tensor, shape: Shape) -> StateTensor:
    """How a tensor of the state follows the shape of its parameter."""
    sizes = [size for size in tensor.shape if size != 1]
    if all(size in shape for size in sizes):
        return StateTensor(tuple(shape.index(size) for size in sizes), tensor.element_size())
    return StateTensor(None, tensor.nbytes / math.prod(shape))


def _measure_temporaries(
    optimizer_class: Any, options: Mapping[str, Any], shape: Shape, dtype: torch.dtype, count: int
) -> float:
    """The temporary results of a second step, in multiples of one parameter."""
    optimizer, parameters = _make_stepped(optimizer_class, options, shape, dtype, count)
    known = [leaf for leaf in tree_iter(dict(optimizer.state)) if isinstance(leaf, torch.Tensor)]
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    with MemoryMeter([*parameters, *gradients, *known]) as meter:
        optimizer.step()
    highest = max((peaks.by_total.total for peaks in meter.peaks.values()), default=0)
    return highest / parameters[0].nbytes
