"""Find the model inside its wrappers: compiled, parallel or with adapters."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def unwrap_model(model: nn.Module) -> nn.Module:
    """The module inside the wrappers of torch.compile and data parallelism, whose weights are saved."""
    while True:
        if "_orig_mod" in getattr(model, "_modules", ()):  # an object around a module has no parts
            model = model.get_submodule("_orig_mod")
        elif isinstance(model, (DataParallel, DistributedDataParallel)):
            model = model.module
        else:
            return model


def is_adapter(model: nn.Module) -> bool:
    """Whether PEFT wrapped the model."""
    peft = sys.modules.get("peft")  # if PEFT is not imported, it wrapped no model
    return peft is not None and isinstance(model, (peft.PeftModel, peft.PeftMixedModel))


def unwrap_peft_model(model: nn.Module) -> nn.Module:
    """The model inside PEFT's wrapper; any other model as it is."""
    outer: Any = model
    if not is_adapter(outer):
        return model
    has_accessor = hasattr(outer, "get_base_model")  # PeftMixedModel has none
    inner: nn.Module = outer.get_base_model() if has_accessor else outer.base_model.model
    return inner


def get_module_class_from_name(module: nn.Module, name: str) -> type[nn.Module] | None:
    """The class of this name among the module and its parts; None if no part has it."""
    return next((type(part) for part in module.modules() if type(part).__name__ == name), None)


def bare_model(model: nn.Module) -> nn.Module:
    """The innermost model, also inside adapters, whose forward names the inputs."""
    outer: Any = unwrap_model(model)
    if is_adapter(outer):
        return bare_model(unwrap_peft_model(outer))
    if isinstance(getattr(outer, "module", None), nn.Module) and _passes_arguments_on(outer):
        return bare_model(outer.module)
    return outer  # type: ignore[no-any-return]


def _passes_arguments_on(model: nn.Module) -> bool:
    """Whether forward names no parameter: then this is a wrapper, not a model with a part called `module`."""
    parameters = inspect.signature(model.forward).parameters.values()
    return all(parameter.kind in _VARIADIC for parameter in parameters)


def forward_parameters(model: nn.Module) -> list[str]:
    """The parameter names of the innermost model's forward."""
    return list(inspect.signature(bare_model(model).forward).parameters)
