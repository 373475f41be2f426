"""Several processes with the whole model each, by torch's DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from footplate import comm
from footplate.distributed.strategy import Strategy

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

_NOTHING: AbstractContextManager[None] = nullcontext()
_OPTIONS = ("find_unused_parameters", "bucket_cap_mb", "broadcast_buffers", "static_graph")


class DdpStrategy(Strategy):
    """Averages gradients over the processes while backward runs; the rest is done by another strategy.

    Args:
        inner: What one process does, such as mixed precision.
        args: The settings of DDP.
    """

    def __init__(self, inner: Strategy, args: TrainingArguments) -> None:
        self.inner, self._args = inner, args
        self.is_scaled, self.scaler = inner.is_scaled, inner.scaler
        # another process may run out of memory before it exchanges: they agree first, and exchange at the end
        self.averages_at_end = args.auto_find_batch_size
        self.syncs_each_batch = args.accelerator_config.syncs_each_batch
        self._wrapped: DistributedDataParallel | None = None
        self._trained: list[nn.Parameter] = []  # those that it averages the gradients of

    @property
    def step_was_skipped(self) -> bool:  # type: ignore[override]
        """Whether the scaler skipped the last update."""
        return self.inner.step_was_skipped

    def prepare_model(self, model: nn.Module) -> nn.Module:
        """The model in DDP, with the weights of the first process; the same wrapper for the same weights."""
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if isinstance(model, DistributedDataParallel) or not trained:
            return self.inner.prepare_model(model)
        if self._wrapped is not None:
            if self._wrapped.module is model and same_tensors(self._trained, trained):
                return self._wrapped
            self._wrapped = None  # two reducers on the same weights would both exchange their gradients
        self._trained = trained
        self._wrapped = wrapped = DistributedDataParallel(
            self.inner.prepare_model(model),
            device_ids=None if trained[0].device.type == "cpu" else [trained[0].device],
            gradient_as_bucket_view=True,  # saves a copy of all gradients
            **plan_ddp(self._args, model),
        )
        return wrapped

    def for_evaluation(self, model: nn.Module) -> nn.Module:
        """The model without DDP, which exchanges buffers in forward; all use those of the first process."""
        if not isinstance(model, DistributedDataParallel):
            return model
        if model.broadcast_buffers:
            comm.broadcast_tensors(model.module.buffers())
        inner: nn.Module = model.module
        return inner

    def prepare_optimizer(self, optimizer: Optimizer) -> Optimizer:
        """The optimizer as one process has it."""
        return self.inner.prepare_optimizer(optimizer)

    def accumulate(self, model: nn.Module, sync: bool) -> AbstractContextManager[Any]:
        """Exchange gradients in the last micro-batch only, unless the settings ask for each."""
        sync = sync or self.syncs_each_batch
        if (sync and not self.averages_at_end) or not isinstance(model, DistributedDataParallel):
            return _NOTHING
        return model.no_sync()

    def finish_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Average the gradients now, if backward did not."""
        if self.averages_at_end:
            comm.average_gradients([p.grad for p in parameters if p.grad is not None])

    def backward(self, loss: torch.Tensor, **kwargs: Any) -> None:
        """Add the gradients of `loss`."""
        self.inner.backward(loss, **kwargs)

    def clip_grad_norm(self, parameters: Iterable[nn.Parameter], max_norm: float | None) -> torch.Tensor:
        """Clip: gradients are the same on all processes by now."""
        return self.inner.clip_grad_norm(parameters, max_norm)


def same_tensors(some: list[nn.Parameter], others: list[nn.Parameter]) -> bool:
    """Whether two lists hold the same objects."""
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))


def plan_ddp(args: TrainingArguments, model: nn.Module | None) -> dict[str, Any]:
    """The options of DDP that the settings give; the others stay as torch has them."""
    given = {name: getattr(args, f"ddp_{name}") for name in _OPTIONS}
    if given["find_unused_parameters"] is None:  # it breaks models of transformers that recompute activations
        given["find_unused_parameters"] = not (hasattr(model, "config") and recomputes(model, args))
    return {name: value for name, value in given.items() if value is not None}


def recomputes(model: nn.Module | None, args: TrainingArguments) -> bool:
    """Whether activations are recomputed, by the model or by the arguments."""
    names = ("is_activation_checkpointing", "is_gradient_checkpointing")  # since 5.x, and before
    name = next((name for name in names if hasattr(type(model), name)), "")
    return bool(args.activation_checkpointing or getattr(model, name, False))
