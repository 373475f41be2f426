"""Whether DeepSpeed or FSDP is on in this process, as far as models of transformers can tell."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import Any

import torch

_DEEPSPEED = "transformers.integrations.deepspeed"
_ON = ("y", "yes", "t", "true", "on", "1")


def is_deepspeed_available() -> bool:
    """Whether DeepSpeed is installed."""
    return find_spec("deepspeed") is not None


def is_deepspeed_zero3_enabled() -> bool:
    """Whether models of transformers are built for ZeRO-3: its module holds the configuration."""
    holder: Any = sys.modules.get(_DEEPSPEED)  # if it was never imported, nobody configured anything
    return holder is not None and bool(vars(holder)["is_deepspeed_zero3_enabled"]())


def deepspeed_config() -> Any:
    """The configuration of DeepSpeed that models of transformers see; None if there is none."""
    holder: Any = sys.modules.get(_DEEPSPEED)
    return None if holder is None else vars(holder)["deepspeed_config"]()


def is_fsdp_enabled() -> bool:
    """Whether models of transformers are loaded on the first rank only, for FSDP."""
    names = ("ACCELERATE_USE_FSDP", "FSDP_CPU_RAM_EFFICIENT_LOADING")
    is_asked_for = all(os.environ.get(name, "false").lower() in _ON for name in names)
    return is_asked_for and torch.distributed.is_available() and torch.distributed.is_initialized()


def is_fsdp_managed_module(module: torch.nn.Module) -> bool:
    """Whether FSDP of either kind has wrapped this module.

    Args:
        module: Any module.
    """
    if not torch.distributed.is_available():
        return False
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    is_wrapped = isinstance(module, (FSDPModule, FullyShardedDataParallel))
    return is_wrapped or bool(getattr(module, "_is_fsdp_managed_module", False))
