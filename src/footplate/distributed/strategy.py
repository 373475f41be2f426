"""The operations that the loop needs from the hardware, for one process on one device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

from footplate.distributed.backward import run_backward

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

_kind = attrgetter("requires_grad", "__class__", "dtype", "device", "layout")
_NOTHING: AbstractContextManager[None] = nullcontext()


class Strategy:
    """One process in full precision; subclasses change what their hardware or precision needs."""

    is_scaled = False  # a loss scaler finds overflows and skips such updates by itself
    step_was_skipped = False  # whether the scaler skipped the last update
    scaler: Any = None  # the scaler itself; its state is saved in checkpoints
    shards = False  # each process has a part of the weights only
    save_group: Any = None  # where processes agree on a checkpoint that they write together

    def prepare_model(self, model: nn.Module) -> nn.Module:
        """The model to use in forward and backward; it shares its weights with `model`."""
        return model

    def for_evaluation(self, model: nn.Module) -> nn.Module:
        """The prepared model as an evaluation calls it."""
        return model

    def whole_state(self, model: nn.Module) -> dict[str, Any] | None:
        """The weights to save, if the model itself does not hold them; all processes call this."""
        return None

    def prepare_optimizer(self, optimizer: Optimizer) -> Optimizer:
        """The optimizer that the loop steps."""
        return optimizer

    def accumulate(self, model: nn.Module, sync: bool) -> AbstractContextManager[Any]:
        """The context of one micro-batch; only the last one of an update synchronises gradients."""
        return _NOTHING

    def backward(self, loss: torch.Tensor, **kwargs: Any) -> None:
        """Add the gradients of `loss`."""
        if kwargs:
            loss.backward(**kwargs)  # type: ignore[no-untyped-call]
        else:
            run_backward(loss)

    def finish_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """The last micro-batch of an update is done: make its gradients those of all processes."""

    def clip_grad_norm(self, parameters: Iterable[nn.Parameter], max_norm: float | None) -> torch.Tensor:
        """Clip the gradients and return their earlier norm; without a positive `max_norm`, only measure."""
        max_norm = max_norm or 0.0
        gradients = [grad for parameter in parameters if (grad := parameter.grad) is not None]
        kinds = set(map(_kind, gradients))
        if len(kinds) != 1 or kinds.pop()[0]:  # of several kinds, or with a graph of their own
            return _clip_mixed(gradients, max_norm)
        # the same bits as torch's clip_grad_norm_ in half the time: that one sorts the tensors first
        norm: torch.Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        if max_norm > 0:
            torch._foreach_mul_(gradients, _find_factor(norm, max_norm))
        return norm

    def join_norms(self, norms: torch.Tensor) -> torch.Tensor:
        """Norms of whole tensors from those of the parts that this process has; all processes call this."""
        return norms


def _find_factor(norm: torch.Tensor, max_norm: float) -> torch.Tensor:
    """What gradients are multiplied by: `clamp(max_norm / (norm + 1e-6), max=1)`, by methods in place.

    A number divided by a tensor is computed by torch as the reciprocal times the number.
    """
    factor = norm.add(1e-6).reciprocal_()
    if max_norm != 1.0:
        factor.mul_(max_norm)
    return factor.clamp_(max=1.0)


@torch.no_grad()
def _clip_mixed(gradients: list[torch.Tensor], max_norm: float) -> torch.Tensor:
    """Clip gradients of any kinds, or an empty list."""
    norm = get_total_norm(gradients)
    if max_norm > 0:
        factor = _find_factor(norm, max_norm)
        for gradient in gradients:
            gradient.detach().mul_(factor.to(gradient.device))
    return norm


def build_strategy(
    args: TrainingArguments, build_accelerator: Callable[[], Any], accelerator: Any = None
) -> Strategy:
    """The strategy for the precision, the optimizer and the number of processes.

    Args:
        args: The settings.
        build_accelerator: Makes the Accelerator, if the strategy needs one.
        accelerator: The one that a subclass has made already; its precision counts.
    """
    settings = args.sharding
    if settings is not None:
        check_can_shard(args)
        from footplate.distributed.fsdp import FsdpStrategy

        each = args.accelerator_config.syncs_each_batch
        return FsdpStrategy(settings, args.device, args.mixed_precision, syncs_each_batch=each)
    inner = _build_for_one(args, build_accelerator, accelerator)
    if args.world_size == 1:
        return inner
    if args.optim in ("lomo", "adalomo"):
        raise ValueError(
            f"optim={str(args.optim)!r} updates weights inside backward, and the gradients of "
            f"{args.world_size} processes are averaged after it. Choose another optimizer, or start one "
            "process."
        )
    from footplate.distributed.ddp import DdpStrategy

    return DdpStrategy(inner, args)


def check_can_shard(args: TrainingArguments) -> None:
    """Refuse settings that do not work on parts of weights."""
    if args.auto_find_batch_size:
        raise ValueError(
            "auto_find_batch_size=True does not work with fsdp: a process that runs out of memory in forward "
            "leaves the others waiting for its weights. Lower per_device_train_batch_size instead."
        )
    if args.optim in ("lomo", "adalomo", "adafactor"):
        raise ValueError(
            f"optim={str(args.optim)!r} needs whole weights, and fsdp gives each process a part of them. "
            "Choose adamw_torch or another optimizer of torch."
        )


def _build_for_one(
    args: TrainingArguments, build_accelerator: Callable[[], Any], accelerator: Any
) -> Strategy:
    """What each process does by itself."""
    steps_in_backward = args.optim in ("lomo", "adalomo")
    precision = getattr(accelerator, "mixed_precision", args.mixed_precision)
    if precision == "no" and not steps_in_backward:
        return Strategy()
    from footplate.distributed.accelerated import AcceleratedStrategy

    return AcceleratedStrategy(build_accelerator(), steps_in_backward)
