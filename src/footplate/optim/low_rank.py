"""Optimizers that project layers to a low rank: their groups, and the variant with one per parameter."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from footplate.outputs import ParallelMode

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

logger = logging.getLogger(__name__)


class LayerWiseDummyOptimizer(Optimizer):
    """A placeholder for one optimizer per parameter; those step on their own during the backward pass.

    Args:
        optimizer_dict: The optimizer of each parameter.
        lr: Their first rate.
    """

    def __init__(self, optimizer_dict: dict[nn.Parameter, Optimizer], lr: float = 1e-3) -> None:
        self.optimizer_dict = optimizer_dict
        super().__init__([torch.zeros(1)], {"lr": lr})

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Do nothing: each gradient was cleared right after its use."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Do nothing: the parameters were updated during the backward pass."""


class LayerWiseDummyScheduler(LRScheduler):
    """Reports the rate of the schedules of each parameter, which step on their own during the backward pass.

    Args:
        optimizer: The placeholder that holds the optimizers.
        make_schedule: Makes the schedule of one optimizer.
    """

    def __init__(
        self, optimizer: LayerWiseDummyOptimizer, make_schedule: Callable[[Optimizer], LRScheduler]
    ) -> None:
        schedules = {parameter: make_schedule(inner) for parameter, inner in optimizer.optimizer_dict.items()}

        def advance(parameter: nn.Parameter) -> None:
            schedules[parameter].step()

        # hooks run in the order they were added: the optimizer's first, so the rate changes after the update
        for parameter in schedules:
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(advance)  # type: ignore[no-untyped-call]
        self._reported = next(
            (schedule for parameter, schedule in schedules.items() if parameter.requires_grad), None
        )
        super().__init__(optimizer)

    def get_lr(self) -> list[float | torch.Tensor]:
        """The rate of a parameter's next update."""
        return self._reported.get_last_lr()[:1] if self._reported else list(self.base_lrs)

    def state_dict(self) -> dict[str, Any]:
        """The state, without the schedule that is only reported."""
        return {key: value for key, value in super().state_dict().items() if key != "_reported"}


def low_rank_groups(
    args: TrainingArguments, model: nn.Module | None, projection: dict[str, Any]
) -> list[dict[str, Any]]:
    """Two groups: first the other parameters, then the linear weights in `optim_target_modules`."""
    names = find_target_weights(args, model)
    assert model is not None  # find_target_weights refuses None
    targets = [parameter for name, parameter in model.named_parameters() if name in names]
    others = [parameter for name, parameter in model.named_parameters() if name not in names]
    return [{"params": others}, {"params": targets, **projection}]


def find_target_weights(args: TrainingArguments, model: nn.Module | None) -> set[str]:
    """The names of the linear weights that `optim_target_modules` matches."""
    optim, wanted = str(args.optim), args.optim_target_modules
    if model is None:
        raise ValueError(f"optim={optim!r} looks for layers in the model. Pass the model.")
    if not isinstance(wanted, (str, list)) or not wanted:
        raise ValueError(
            f"optim={optim!r} needs optim_target_modules: a list of names or patterns, one pattern, or "
            f"'all-linear'. It got {wanted!r}."
        )
    names = set()
    for name, module in model.named_modules():
        is_named, is_exact = _is_target(name, wanted)
        if isinstance(module, nn.Linear):
            if is_named:
                names.add(f"{name}.weight")
        elif is_exact:
            logger.warning(
                f"optim_target_modules names {name!r}, which is not a linear layer: it is not projected."
            )
    if not names:
        raise ValueError(f"optim_target_modules={wanted!r} matches no linear layer of the model.")
    return names


def _is_target(name: str, wanted: str | list[str]) -> tuple[bool, bool]:
    """Whether a module is a target, and whether by its name instead of by a pattern."""
    if isinstance(wanted, str) and wanted.replace("_", "-") == "all-linear":
        return True, False
    is_found, is_pattern = _match(name, wanted)
    return is_found, is_found and not is_pattern


def _match(name: str, wanted: str | list[str]) -> tuple[bool, bool]:
    """Whether a name or a pattern matches, and whether it is a pattern that decided."""
    if isinstance(wanted, str):
        return re.fullmatch(wanted, name) is not None, wanted != name
    if any(part in name for part in wanted):
        return True, False
    is_found = any(re.fullmatch(pattern, name) for pattern in wanted)
    return is_found, is_found


def check_target_module_exists(
    optim_target_modules: str | list[str], key: str, return_is_regex: bool = False
) -> bool | tuple[bool, bool]:
    """Whether the module `key` is among the targets, and on request whether by a pattern.

    Args:
        optim_target_modules: One pattern, or a list of names, parts of names and patterns.
        key: The name of a module.
        return_is_regex: Return both answers.
    """
    is_found, is_pattern = _match(key, optim_target_modules)
    return (is_found, is_pattern) if return_is_regex else is_found


def build_layerwise(
    args: TrainingArguments,
    groups: list[dict[str, Any]],
    optimizer_class: type[Optimizer],
    kwargs: dict[str, Any],
) -> tuple[type[Optimizer], dict[str, Any]]:
    """One optimizer per parameter, which steps as soon as the gradient is complete and then clears it."""
    if args.gradient_accumulation_steps != 1:
        raise ValueError(
            f"optim={str(args.optim)!r} uses each gradient at once and cannot accumulate. Set "
            f"gradient_accumulation_steps=1 (it is {args.gradient_accumulation_steps})."
        )
    if getattr(args, "parallel_mode", None) == ParallelMode.DISTRIBUTED:
        raise NotImplementedError(f"optim={str(args.optim)!r} works in a single process only.")

    optimizers: dict[nn.Parameter, Optimizer] = {}
    for group in groups:
        for parameter in group["params"]:
            optimizers[parameter] = optimizer_class([{**group, "params": [parameter]}], **kwargs)

    def update(parameter: nn.Parameter) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in optimizers:
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(update)  # type: ignore[no-untyped-call]
    return LayerWiseDummyOptimizer, {"optimizer_dict": optimizers, "lr": kwargs["lr"]}
