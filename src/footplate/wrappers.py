"""What is around a model, compiled, parallel or adapted, and the model inside."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def unwrap_model(model: nn.Module) -> nn.Module:
    """The module inside compilation and data-parallel wrappers: the one whose weights are saved."""
    while True:
        if "_orig_mod" in model._modules:
            model = model.get_submodule("_orig_mod")
        elif isinstance(model, (DataParallel, DistributedDataParallel)):
            model = model.module
        else:
            return model


def is_adapter(model: nn.Module) -> bool:
    """Whether PEFT wrapped the model."""
    peft = sys.modules.get("peft")  # a model that PEFT wrapped has imported it
    return peft is not None and isinstance(model, (peft.PeftModel, peft.PeftMixedModel))


def bare_model(model: nn.Module) -> nn.Module:
    """The innermost model, inside adapters too: the one whose forward names the inputs."""
    outer: Any = unwrap_model(model)
    if is_adapter(outer):  # the mixed kind has no accessor of its own
        return bare_model(
            outer.get_base_model() if hasattr(outer, "get_base_model") else outer.base_model.model
        )
    if isinstance(getattr(outer, "module", None), nn.Module) and _names_nothing(outer):
        return bare_model(outer.module)
    return outer  # type: ignore[no-any-return]


def _names_nothing(model: nn.Module) -> bool:
    # a model may well have a part called `module`; one whose forward only passes arguments on is a wrapper
    parameters = inspect.signature(model.forward).parameters.values()
    return all(parameter.kind in _VARIADIC for parameter in parameters)


def forward_parameters(model: nn.Module) -> list[str]:
    """The parameter names of the forward that does the work, whatever is around it."""
    return list(inspect.signature(bare_model(model).forward).parameters)
