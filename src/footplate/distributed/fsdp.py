"""FSDP2: weights, gradients and optimizer state in shards, one on each process, by torch's `fully_shard`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint

from footplate import comm
from footplate.distributed.fsdp_layers import choose_layers
from footplate.distributed.strategy import Strategy
from footplate.wrappers import unwrap_model

if TYPE_CHECKING:
    from footplate.arguments.fsdp_config import FsdpSettings

_NOTHING: AbstractContextManager[None] = nullcontext()
_CACHES = ("past_key_values", "past_key_value", "layer_past", "cache_params")


class FsdpStrategy(Strategy):
    """Shards the model over all processes, or over groups of them that hold one copy each.

    Args:
        settings: What `fsdp` and `fsdp_config` mean.
        device: Where this process computes.
        mixed_precision: "no" or "bf16".
        syncs_each_batch: Reduce the gradients after every micro-batch: slower, and needs less memory.
    """

    def __init__(
        self,
        settings: FsdpSettings,
        device: torch.device,
        mixed_precision: str = "no",
        syncs_each_batch: bool = False,
    ) -> None:
        self.settings = settings
        self.device = device
        self.syncs_each_batch = syncs_each_batch
        self.precision = plan_precision(mixed_precision, settings.mixed_precision_policy)
        self.mesh = build_mesh(settings, device.type)
        self.shards, self.save_group = True, comm.new_group()
        self._new_parameters: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}  # by id: before and after

    def prepare_model(self, model: nn.Module) -> nn.Module:
        """Shard the model in place; every process then has its part of the first process's weights."""
        module = unwrap_model(model)
        if is_sharded(module):
            return model  # an earlier call has sharded it already
        has_empty = any(comm.gather_objects(_has_meta(module)))
        is_first = comm.rank() == 0
        state = module.state_dict() if is_first else {}
        unsaved = _find_unsaved_buffers(module) if is_first and has_empty else {}
        unsaved = comm.broadcast_object(unsaved) if has_empty else {}
        before = dict(module.named_parameters())
        self._shard(module)
        if _has_meta(module):
            module.to_empty(device="cpu" if self.settings.cpu_offload else self.device)
        load_full_state_dict(module, state)
        _restore_buffers(module, unsaved)
        after = dict(module.named_parameters())
        self._new_parameters = {id(old): (old, after[name]) for name, old in before.items()}
        return model

    def _shard(self, module: nn.Module) -> None:
        """Apply `fully_shard` to the layers, then to the model."""
        options: dict[str, Any] = {"mesh": self.mesh}
        if self.settings.cpu_offload:
            options["offload_policy"] = CPUOffloadPolicy(pin_memory=self.device.type != "cpu")
        layers = choose_layers(module, self.settings)
        if self.settings.activation_checkpointing:
            for layer in layers or [module]:
                recompute_activations(layer)
        reshard = self.settings.reshard_after_forward
        half = self.precision["param_dtype"]
        if half is not None:
            whole = MixedPrecisionPolicy(param_dtype=torch.float32, output_dtype=half)
            for part in _find_batch_norms(
                module
            ):  # its statistics are in float32, and so must its weights be
                fully_shard(part, reshard_after_forward=reshard, mp_policy=whole, **options)
        inner = MixedPrecisionPolicy(**{**self.precision, "output_dtype": None})
        for layer in layers:
            fully_shard(layer, reshard_after_forward=reshard, mp_policy=inner, **options)
        # what is outside the layers is used last and first: gathered again at once, so it is not resharded
        fully_shard(
            module, reshard_after_forward=False, mp_policy=MixedPrecisionPolicy(**self.precision), **options
        )

    def for_evaluation(self, model: nn.Module) -> nn.Module:
        """The sharded model with the buffers of the first process, such as statistics of batches, on all."""
        comm.broadcast_tensors(unwrap_model(model).buffers())
        return model

    def whole_state(self, model: nn.Module) -> dict[str, Any] | None:
        """The whole weights, on the first process."""
        return full_state_dict(model) or {}

    def prepare_optimizer(self, optimizer: Optimizer) -> Optimizer:
        """Point an optimizer that was made before sharding to the sharded parameters."""
        groups = optimizer.param_groups
        has_old = any(
            id(parameter) in self._new_parameters for group in groups for parameter in group["params"]
        )
        if has_old and optimizer.state:
            raise ValueError(
                "The optimizer has a state already, of weights that were whole. With fsdp, give the Trainer "
                "an optimizer that has not stepped yet, or let it build one."
            )
        for group in groups:
            group["params"] = [self._find_new(parameter) for parameter in group["params"]]
        return optimizer

    def _find_new(self, parameter: nn.Parameter) -> nn.Parameter:
        _, new = self._new_parameters.get(id(parameter), (parameter, parameter))
        return new

    def accumulate(self, model: nn.Module, sync: bool) -> AbstractContextManager[Any]:
        """Reduce the gradients in the last micro-batch only, unless the settings ask for each."""
        sharded: Any = unwrap_model(model)
        sharded.set_requires_gradient_sync(sync or self.syncs_each_batch)
        sharded.set_is_last_backward(sync)
        return _NOTHING

    def clip_grad_norm(self, parameters: Iterable[nn.Parameter], max_norm: float | None) -> torch.Tensor:
        """Clip by the norm over the shards of all processes, and return that norm."""
        shards = [_local(grad) for parameter in parameters if (grad := parameter.grad) is not None]
        with torch.no_grad():
            norm = self.join_norms(get_total_norm(shards)).float()
            if max_norm and max_norm > 0 and shards:
                factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
                torch._foreach_mul_(shards, factor.to(shards[0].device))
        return norm

    def join_norms(self, norms: torch.Tensor) -> torch.Tensor:
        """Norms of whole tensors from those of the shards; all processes call this."""
        # every replica has the same sum, so only the processes of one copy add theirs
        placements = [Replicate()] * (self.mesh.ndim - 1) + [Partial()]
        own = norms.to(self.device, torch.float64).square()
        total: torch.Tensor = DTensor.from_local(own, self.mesh, placements, run_check=False).full_tensor()
        return total.sqrt()


def build_mesh(settings: FsdpSettings, device_type: str) -> DeviceMesh:
    """All processes in a row, or for hybrid sharding one row for each copy of the weights."""
    if not comm.is_distributed():
        raise ValueError(
            "fsdp shards a model over processes that train together, and this process is alone. Start the "
            "script with torchrun --nproc-per-node N, or leave fsdp unset."
        )
    num_processes = comm.world_size()
    size = settings.shard_size
    if settings.is_hybrid and size is None:
        size = int(os.environ.get("LOCAL_WORLD_SIZE", num_processes))  # one copy on each machine
    size = size or num_processes
    if num_processes % size:
        raise ValueError(
            f"fsdp_config has shard_size={size} (by default, the processes of one machine), and "
            f"{num_processes} processes cannot be divided into groups of {size}. Set shard_size to a divisor "
            f"of {num_processes}."
        )
    if size == num_processes:
        return init_device_mesh(device_type, (num_processes,), mesh_dim_names=("shard",))
    shape = (num_processes // size, size)
    return init_device_mesh(device_type, shape, mesh_dim_names=("replicate", "shard"))


def plan_precision(mixed_precision: str, policy: Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments of torch's `MixedPrecisionPolicy`; a policy in `fsdp_config` has priority."""
    if mixed_precision not in ("no", "bf16"):
        raise ValueError(
            f"fsdp with mixed_precision={mixed_precision!r} is not supported: gradients in float16 need a "
            "scaler that knows the shards. Set bf16=True, or leave fp16 unset."
        )
    half = torch.bfloat16 if mixed_precision == "bf16" else None
    full = torch.float32 if half else None  # sums of gradients and the outputs, as autocast gives them
    planned: dict[str, Any] = {"param_dtype": half, "reduce_dtype": full, "output_dtype": full}
    for name, value in (policy or {}).items():
        planned[name] = getattr(torch, value) if isinstance(value, str) else value
    return planned


def recompute_activations(layer: Any) -> None:
    """Make a layer compute its activations again in backward; names of its parameters stay as they are."""
    forward: Callable[..., Any] = layer.forward

    @wraps(forward)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        # the second forward would add to a cache of keys and values again
        kept: dict[str, Any] = {name: None if name in _CACHES else value for name, value in kwargs.items()}
        if "use_cache" in kept:
            kept["use_cache"] = False
        return checkpoint(forward, *args, use_reentrant=False, **kept)

    layer.forward = checkpointed


def is_sharded(model: nn.Module) -> bool:
    """Whether `fully_shard` was applied to the model."""
    return isinstance(unwrap_model(model), FSDPModule)


def full_state_dict(model: nn.Module) -> dict[str, Any] | None:
    """The whole weights in host memory on the first process, None on others; all processes must call it."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    module = unwrap_model(model)
    state: dict[str, Any] = get_model_state_dict(module, options=options)
    if comm.rank() > 0:
        return None
    first: dict[int, str] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if name in state:  # a tied weight was copied once for each of its names
            state[name] = state[first.setdefault(id(parameter), name)]
    return state


def load_full_state_dict(model: nn.Module, state: Mapping[str, Any] | None) -> None:
    """Give every process its part of the first one's `state`; others pass None, and all must call it."""
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=comm.is_distributed())
    set_model_state_dict(unwrap_model(model), dict(state or {}), options=options)


def _local(gradient: torch.Tensor) -> torch.Tensor:
    """The part of a gradient that this process has."""
    return gradient.to_local() if isinstance(gradient, DTensor) else gradient


def _find_batch_norms(module: nn.Module) -> list[nn.Module]:
    """The parts that keep statistics of batches and have weights."""
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    return [part for part in module.modules() if isinstance(part, kinds) and part.weight is not None]


def _has_meta(module: nn.Module) -> bool:
    """Whether weights exist by name and shape only."""
    return any(parameter.is_meta for parameter in module.parameters())


def _find_unsaved_buffers(module: nn.Module) -> dict[str, torch.Tensor]:
    """The buffers that a state dict leaves out: processes with empty weights have no values for them."""
    saved = module.state_dict()
    return {name: buffer.cpu() for name, buffer in module.named_buffers() if name not in saved}


def _restore_buffers(module: nn.Module, buffers: Mapping[str, torch.Tensor]) -> None:
    """Copy values into the buffers of these names."""
    for name, buffer in module.named_buffers():
        if name in buffers:
            buffer.copy_(buffers[name])
