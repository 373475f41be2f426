"""Backward of an ordinary loss, without what `Tensor.backward` looks up for other uses."""

from __future__ import annotations

import functools
import logging
from typing import Any

import torch
from torch import Tensor, autograd

_TENSOR_BACKWARD, _AUTOGRAD_BACKWARD = Tensor.backward, autograd.backward
_graph_logger = logging.getLogger("torch.autograd.graph")


def run_backward(loss: Tensor) -> None:
    """Add the gradients of `loss`, as `loss.backward()` does.

    Python code around torch's engine takes 35 µs to tell apart losses with several values, tensors of other
    classes and graphs to keep, and to hand its context to the threads of devices. A scalar on the CPU needs
    none of it. Everything else goes to `loss.backward()`.
    """
    if not (_is_plain(loss) and _is_unchanged() and _engine_works()):
        loss.backward()  # type: ignore[no-untyped-call]
        return
    _call_engine(loss, torch.ones_like(loss))


def _is_plain(loss: Tensor) -> bool:
    """Whether this is a scalar on the CPU that has a graph."""
    return (
        type(loss) is Tensor
        and loss.is_cpu
        and loss.requires_grad
        and not loss.dim()
        and not loss.is_complex()
    )


def _is_unchanged() -> bool:
    """Whether nobody has put something else in the place of backward, or listens to it."""
    return (
        Tensor.backward is _TENSOR_BACKWARD
        and autograd.backward is _AUTOGRAD_BACKWARD
        and not torch._C._len_torch_function_stack()
        and not torch._C._are_functorch_transforms_active()
        and not _graph_logger.isEnabledFor(logging.DEBUG)  # torch logs each node then
    )


def _call_engine(loss: Tensor, gradient: Tensor) -> Any:
    return autograd.Variable._execution_engine.run_backward(
        (loss,), (gradient,), False, False, (), allow_unreachable=True, accumulate_grad=True
    )


@functools.cache
def _engine_works() -> bool:
    """Whether this version of torch has the engine as it is called here, and its own backward."""
    if {_TENSOR_BACKWARD.__module__, _AUTOGRAD_BACKWARD.__module__} != {"torch._tensor", "torch.autograd"}:
        return False  # replaced before this module was loaded
    leaf = torch.zeros((), requires_grad=True)
    try:
        _call_engine(leaf * 3.0, torch.ones(()))
    except (AttributeError, TypeError):
        return False
    return leaf.grad is not None and leaf.grad.item() == 3.0
