"""The state of an optimizer by the names of parameters, so that another number of processes can load it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, zeros

from footplate.comm import map_nested
from footplate.wrappers import unwrap_model

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


class NamedState(NamedTuple):
    """Tensors by one name each, and everything else as plain values."""

    tensors: dict[str, torch.Tensor]
    plain: dict[str, Any]


def name_state(model: nn.Module, optimizer: Any) -> NamedState:
    """The optimizer's state with names of parameters in place of their numbers; nothing is copied."""
    state = optimizer.state_dict()
    names = dict(zip(_list_ids(state), name_parameters(model, optimizer), strict=True))
    tensors: dict[str, torch.Tensor] = {}
    places: dict[str, Any] = {}  # for each tensor: parameter, key, and the dimension that is sharded
    other: dict[str, Any] = {}
    for number, entries in state["state"].items():
        name = names.get(number, number)
        for key, value in entries.items():
            if isinstance(value, torch.Tensor):
                tensors[f"{name}/{key}"] = value
                places[f"{name}/{key}"] = (name, key, _find_shard_dim(value))
            else:
                map_nested(_refuse_shards, value)
                other.setdefault(name, {})[key] = copy.deepcopy(value)
    groups = [
        {**copy.deepcopy(group), "params": [names[number] for number in group["params"]]}
        for group in state["param_groups"]
    ]
    return NamedState(tensors, {"param_groups": groups, "places": places, "other": other})


def build_targets(
    model: nn.Module, optimizer: Any, places: Mapping[str, Any], stored: Mapping[str, Any]
) -> dict[str, torch.Tensor]:
    """Empty tensors for a stored state, sharded as the parameters of this optimizer are."""
    parameters = dict(zip(name_parameters(model, optimizer), _list_parameters(optimizer), strict=True))
    if unknown := sorted({name for name, _, _ in places.values()} - parameters.keys()):
        raise ValueError(
            f"The optimizer of the checkpoint trains {', '.join(unknown[:3])}, and this one does not. Resume "
            "with the model and settings that wrote it."
        )
    if strange := sorted({stored[flat].dtype for flat in places} - _DTYPES.keys()):
        raise ValueError(f"The optimizer state of the checkpoint has tensors of unknown kinds: {strange}.")
    return {
        flat: _build_target(parameters[name], stored[flat].shape, _DTYPES[stored[flat].dtype], dim)
        for flat, (name, _, dim) in places.items()
    }


def load_named_state(model: nn.Module, optimizer: Any, named: NamedState) -> None:
    """Give the optimizer a state by names, whose tensors are sharded as its parameters are."""
    own = optimizer.state_dict()
    names = name_parameters(model, optimizer)
    numbers = dict(zip(names, _list_ids(own), strict=True))
    state: dict[Any, dict[str, Any]] = {}
    for flat, (name, key, _) in named.plain["places"].items():
        state.setdefault(numbers[name], {})[key] = named.tensors[flat]
    for name, entries in named.plain["other"].items():
        state.setdefault(numbers.get(name, name), {}).update(entries)
    groups = named.plain["param_groups"]
    by_number = {number: name for name, number in numbers.items()}
    for group, own_group in zip(groups, own["param_groups"], strict=False):
        if {by_number[number] for number in own_group["params"]} != set(group["params"]):
            raise ValueError(
                "The groups of the checkpoint's optimizer hold other parameters than this one's."
            )
        group["params"] = own_group["params"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def shard_like_parameters(optimizer: Any, state: dict[str, Any]) -> dict[str, Any]:
    """A state of whole tensors, by numbers, in which each process keeps its own parts."""
    parameters = dict(zip(_list_ids(state), _list_parameters(optimizer), strict=True))

    def shard(number: Any, value: Any) -> Any:
        parameter = parameters.get(number)
        if not isinstance(value, torch.Tensor) or not isinstance(parameter, DTensor) or not value.ndim:
            return value
        is_alike = value.shape == parameter.shape
        placements = parameter.placements if is_alike else [Replicate()] * parameter.device_mesh.ndim
        return shard_tensor(value, parameter, placements)

    entries = {
        number: {key: shard(number, value) for key, value in values.items()}
        for number, values in state["state"].items()
    }
    return {**state, "state": entries}


def shard_tensor(whole: torch.Tensor, like: DTensor, placements: Any = None) -> DTensor:
    """This process's part of a tensor that every process has; nothing is sent."""
    placements = like.placements if placements is None else placements
    return distribute_tensor(whole.to(like.device), like.device_mesh, placements, src_data_rank=None)


def name_parameters(model: nn.Module, optimizer: Any) -> list[str]:
    """The names of an optimizer's parameters, in its order; others than the model's are named by place."""
    named = unwrap_model(model).named_parameters()
    names = {id(parameter): name.replace("_orig_mod.", "") for name, parameter in named}
    parameters = _list_parameters(optimizer)
    return [names.get(id(parameter), f"unnamed.{place}") for place, parameter in enumerate(parameters)]


def _list_parameters(optimizer: Any) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _list_ids(state: Mapping[str, Any]) -> list[Any]:
    return [number for group in state["param_groups"] for number in group["params"]]


def _find_shard_dim(tensor: torch.Tensor) -> int | None:
    """The dimension along which a tensor is sharded; None for a whole one."""
    placements = tensor.placements if isinstance(tensor, DTensor) else ()
    return next((place.dim for place in placements if isinstance(place, Shard)), None)


def _refuse_shards(value: Any) -> Any:
    if isinstance(value, DTensor):
        raise ValueError(
            "The optimizer keeps sharded tensors inside lists or dictionaries of its state, and those cannot "
            "be saved in shards. Use an optimizer that keeps one tensor for each key, such as AdamW."
        )
    return value


def _build_target(
    parameter: Any, shape: tuple[int, ...], dtype: torch.dtype, dim: int | None
) -> torch.Tensor:
    """An empty tensor for one entry: like its parameter if it has its shape."""
    if not isinstance(parameter, DTensor) or not shape:
        return torch.zeros(shape, dtype=dtype)
    placements: Any = parameter.placements
    if tuple(parameter.shape) != shape:
        other = Replicate() if dim is None else Shard(dim)
        placements = [other if isinstance(place, Shard) else Replicate() for place in placements]
    return zeros(*shape, dtype=dtype, device_mesh=parameter.device_mesh, placements=placements)
