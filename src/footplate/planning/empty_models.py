"""Let a script build its model without memory: weights on the meta device, and none read from disk."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

# What weights are made with. Others, such as arange and tensor, make small tables that code may read.
_MAKERS = (
    *(torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn),
    *(torch.empty_strided, torch.normal),
)
_MOVERS = (torch.Tensor.cpu, torch.Tensor.cuda)


class EmptyModels(TorchFunctionMode):
    """Makes tensors on the meta device while a module is constructed, and leaves them there."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _MAKERS and _is_free(kwargs.get("device")) and is_in_constructor(sys._getframe(1)):
            kwargs["device"] = "meta"
        elif func is torch.Tensor.to and args[0].is_meta:
            dtype = _find_dtype(args[1:], kwargs)
            return args[0] if dtype is None else func(args[0], dtype)
        elif func in _MOVERS and args[0].is_meta:
            return args[0]
        return func(*args, **kwargs)


def is_in_constructor(frame: FrameType | None) -> bool:
    """Whether a module is being constructed in this frame or one that called it."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__init__" and isinstance(frame.f_locals.get(code.co_varnames[0]), nn.Module):
            return True
        frame = frame.f_back
    return False


@contextmanager
def empty_models() -> Iterator[None]:
    """In the block, models have no memory; `from_pretrained` reads the configuration alone."""
    if find_spec("transformers") is None:
        with EmptyModels():
            yield
        return
    from transformers import PreTrainedModel

    original = vars(PreTrainedModel)["from_pretrained"]
    PreTrainedModel.from_pretrained = classmethod(_from_configuration)
    try:
        with EmptyModels():
            yield
    finally:
        PreTrainedModel.from_pretrained = original


def _from_configuration(cls: Any, /, name: Any, *args: Any, config: Any = None, **kwargs: Any) -> Any:
    """The model that `from_pretrained` would load, without its weights."""
    dtype = kwargs.pop("dtype", None) or kwargs.pop("torch_dtype", None)
    if config is None or isinstance(config, str):
        source = config or name
        config, kwargs = cls.config_class.from_pretrained(source, return_unused_kwargs=True, **kwargs)
    chosen = (
        {}
        if dtype in (None, "auto")
        else {"dtype": getattr(torch, dtype) if isinstance(dtype, str) else dtype}
    )
    if "attn_implementation" in kwargs:
        chosen["attn_implementation"] = kwargs["attn_implementation"]
    return cls._from_config(config, **chosen).eval()


def _is_free(device: Any) -> bool:
    """Whether nobody asked for memory of this machine by name."""
    return device is None or torch.device(device).type != "cpu"


def _find_dtype(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.dtype | None:
    """The dtype among the arguments of `Tensor.to`, which may also be a tensor to be like."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.dtype):
            return value
        if isinstance(value, torch.Tensor):
            return value.dtype
    return None
