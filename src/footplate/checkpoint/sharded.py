"""Checkpoints of sharded models: each process writes and reads its own part."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from footplate.checkpoint.consolidate import consolidate
from footplate.checkpoint.files import Folder, load_plain, save_plain
from footplate.checkpoint.named_state import (
    NamedState,
    build_targets,
    load_named_state,
    name_state,
    shard_like_parameters,
    shard_tensor,
)
from footplate.checkpoint.optimizer import OPTIMIZER_NAME, load_optimizer
from footplate.checkpoint.shard_layout import (
    MODEL_SHARDS,
    OPTIMIZER_SHARDS,
    Stored,
    is_sharded_checkpoint,
    read_layout,
    read_sharded,
    write_index,
)
from footplate.checkpoint.tensors import read_shards
from footplate.checkpoint.weights import SAFE_WEIGHTS_NAME, WEIGHTS_NAME, LoadResult, load_weights
from footplate.wrappers import unwrap_model

__all__ = [
    "ShardCopies",
    "consolidate",
    "copy_shards",
    "is_sharded_checkpoint",
    "load_sharded_optimizer",
    "load_shards",
    "save_shards",
    "write_shards",
]

GROUPS_NAME = "groups.pt"

logger = logging.getLogger(__name__)


class ShardCopies(NamedTuple):
    """This process's part of weights and optimizer state, in host memory."""

    weights: dict[str, torch.Tensor]
    aliases: dict[str, str]  # other names of tied weights
    optimizer: NamedState | None


# ---- saving ----


def save_shards(folder: Folder, model: nn.Module, optimizer: Any = None) -> None:
    """Write weights and optimizer state; every process must call it, with a folder that all of them see."""
    write_shards(folder, copy_shards(model, optimizer))


def copy_shards(model: nn.Module, optimizer: Any = None) -> ShardCopies:
    """Copy this process's part into host memory: the model may then train on while the copy is written."""
    state, aliases = _name_weights(model)
    weights = {name: _copy(tensor) for name, tensor in state.items() if name not in aliases}
    if optimizer is None:
        return ShardCopies(weights, aliases, None)
    named = name_state(model, optimizer)
    tensors = {name: _copy(tensor) for name, tensor in named.tensors.items()}
    return ShardCopies(weights, aliases, NamedState(tensors, named.plain))


def write_shards(folder: Folder, copies: ShardCopies, group: Any = None) -> None:
    """Write copied shards; every process must call it, in a thread too if `group` is used by nothing else.

    Args:
        folder: A folder that all processes see.
        copies: What `copy_shards` returned.
        group: The process group in which the writers agree; None for that of the training.
    """
    _write(Path(folder, MODEL_SHARDS), copies.weights, copies.aliases, group)
    if copies.optimizer is not None:
        path = Path(folder, OPTIMIZER_SHARDS)
        if _is_first(group):
            save_plain(copies.optimizer.plain, path / GROUPS_NAME)
        _write(path, copies.optimizer.tensors, {}, group)


def _write(path: Path, tensors: dict[str, Any], aliases: dict[str, str], group: Any) -> None:
    """Write one file for each process, in safetensors."""
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    if _is_first(group):  # others write only after the first one has planned with them
        path.mkdir(parents=True, exist_ok=True)
        for earlier in path.glob("*.safetensors"):
            earlier.unlink()
        write_index(path, {name: tensor.shape for name, tensor in tensors.items()}, aliases)
    # what every process has, such as statistics of batches, is written as the first one has it
    planner = DefaultSavePlanner(dedup_save_to_lowest_rank=True)
    writer = HuggingFaceStorageWriter(str(path), save_distributed=True)
    # filters of warnings belong to all threads: they are changed only where nothing runs beside this
    with nullcontext() if _is_in_group() else _without_notice():
        save(tensors, storage_writer=writer, planner=planner, process_group=group)


# ---- loading ----


def load_shards(folder: Folder, model: nn.Module, optimizer: Any = None) -> LoadResult:
    """Load a checkpoint, sharded or not, into a model, sharded or not; every process must call it.

    Args:
        folder: A checkpoint that any number of processes wrote.
        model: The model; its parameters stay the same objects.
        optimizer: The optimizer whose state is loaded too; None to load weights only.
    """
    path = Path(folder)
    if not is_sharded_checkpoint(path):
        result = _load_whole_weights(path, model)
        if optimizer is not None:
            _load_whole_optimizer(path, optimizer)
        return result
    stored, aliases = read_sharded(path / MODEL_SHARDS)
    result = _load_weights(path / MODEL_SHARDS, model, stored, aliases)
    if optimizer is not None:
        _load_optimizer(path / OPTIMIZER_SHARDS, model, optimizer)
    return result


def load_sharded_optimizer(folder: Folder, model: nn.Module, optimizer: Any) -> None:
    """Load the optimizer's state alone, as `load_shards` does it."""
    path = Path(folder)
    if is_sharded_checkpoint(path):
        _load_optimizer(path / OPTIMIZER_SHARDS, model, optimizer)
    else:
        _load_whole_optimizer(path, optimizer)


def _load_weights(
    path: Path, model: nn.Module, stored: Mapping[str, Stored], aliases: Mapping[str, str]
) -> LoadResult:
    """Read what this process needs of each tensor."""
    own, own_aliases = _name_weights(model)
    targets = {name: tensor for name, tensor in own.items() if name in stored}
    for name in own.keys() & aliases.keys():  # a tied weight is stored by one of its names
        targets.setdefault(aliases[name], own[name])
    wrong = [
        f"{name} is {stored[name].shape} in the files and {tuple(tensor.shape)} in the model"
        for name, tensor in targets.items()
        if stored[name].shape != tuple(tensor.shape)
    ]
    if wrong:
        raise ValueError(f"{path} was written for a model of other sizes: {'; '.join(wrong)}.")
    _read(path, targets)
    known = stored.keys() | aliases.keys()
    loaded = {own_aliases.get(name, name) for name in own if name in known}
    missing = [name for name in own if own_aliases.get(name, name) not in loaded]
    return LoadResult(missing, [name for name in stored if name not in targets])


def _load_optimizer(path: Path, model: nn.Module, optimizer: Any) -> None:
    """Read what this process needs of the optimizer's state."""
    if not (path / GROUPS_NAME).is_file():
        logger.warning(
            "%s holds no optimizer state, so the optimizer starts from the beginning.", path.parent
        )
        return
    plain = load_plain(path / GROUPS_NAME)
    stored, _ = read_sharded(path)
    if not _is_plain_state(plain) or plain["places"].keys() != stored.keys():
        raise ValueError(f"{path / GROUPS_NAME} is damaged: it does not describe the tensors beside it.")
    targets = build_targets(model, optimizer, plain["places"], stored)
    _read(path, targets)
    load_named_state(model, optimizer, NamedState(targets, plain))


def _load_whole_weights(path: Path, model: nn.Module) -> LoadResult:
    """Load a checkpoint of whole weights: of each tensor, a sharded model reads only its own part."""
    own, _ = _name_weights(model)
    if not any(isinstance(tensor, DTensor) for tensor in own.values()):
        return load_weights(model, path)
    files = sorted(path.glob("*.safetensors"))
    if files:
        return _load_weights(path, model, read_layout(files), {})
    found: set[str] = set()
    for source, state in read_shards(path, (SAFE_WEIGHTS_NAME, WEIGHTS_NAME)):
        found |= state.keys()
        _copy_into(own, state, source)
    if not found:
        raise ValueError(
            f"{path} holds no weights: looked for {MODEL_SHARDS}, *.safetensors, {WEIGHTS_NAME}."
        )
    return LoadResult([name for name in own if name not in found], sorted(found - own.keys()))


def _copy_into(own: Mapping[str, torch.Tensor], state: Mapping[str, Any], source: Path) -> None:
    """Copy whole tensors into the shards of this process."""
    for name in own.keys() & state.keys():
        target, whole = own[name], state[name]
        if whole.shape != target.shape:
            shapes = f"{tuple(whole.shape)} in the file and {tuple(target.shape)} in the model"
            raise ValueError(f"{source} was written for a model of other sizes: {name} is {shapes}.")
        with torch.no_grad():
            target.copy_(shard_tensor(whole, target) if isinstance(target, DTensor) else whole)


def _load_whole_optimizer(path: Path, optimizer: Any) -> None:
    """Load the state of an unsharded optimizer, of which each process keeps its own part."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if (
        not any(isinstance(parameter, DTensor) for parameter in parameters)
        or not (path / OPTIMIZER_NAME).is_file()
    ):
        load_optimizer(optimizer, path)  # it warns if there is none
        return
    state = load_plain(path / OPTIMIZER_NAME)
    try:
        optimizer.load_state_dict(shard_like_parameters(optimizer, state))
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"{path / OPTIMIZER_NAME} does not fit this optimizer: {error}.") from error


def _read(path: Path, targets: dict[str, Any]) -> None:
    """Fill the tensors from the safetensors files of a folder; no process waits for another."""
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    try:
        with _without_notice():
            load(targets, storage_reader=HuggingFaceStorageReader(str(path)), no_dist=True)
    except CheckpointException as error:
        reasons = "; ".join(str(failure[0]) for failure in error.failures.values())
        raise ValueError(f"{path} cannot be read: {reasons}") from error


# ---- what both need ----


def _name_weights(model: nn.Module) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The model's tensors by plain names, and for each further name of a tied one the first name."""
    module = unwrap_model(model)
    state = {name.replace("_orig_mod.", ""): value for name, value in module.state_dict().items()}
    if other := [name for name, value in state.items() if not isinstance(value, torch.Tensor)]:
        raise TypeError(f"Shards hold tensors only, and the model's state has other values: {other}.")
    # by identity: a process whose part is empty must come to the same answer as the others
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    first: dict[int, str] = {}
    aliases = {}
    for name, tensor in ((name.replace("_orig_mod.", ""), tensor) for name, tensor in named):
        if name in state and first.setdefault(id(tensor), name) != name:
            aliases[name] = first[id(tensor)]
    return state, aliases


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in host memory that shares nothing with the tensor."""
    detached = tensor.detach()
    return detached.clone() if detached.device.type == "cpu" else detached.cpu()


def _is_first(group: Any) -> bool:
    """Whether this process plans for the group; a process without a group does."""
    return not _is_in_group() or torch.distributed.get_rank(group) == 0


def _is_in_group() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _is_plain_state(plain: Any) -> bool:
    """Whether a file has what `name_state` writes."""
    kinds = {"param_groups": list, "places": dict, "other": dict}
    if not isinstance(plain, dict) or not all(isinstance(plain.get(key), kinds[key]) for key in kinds):
        return False
    groups, places = plain["param_groups"], plain["places"]
    return all(isinstance(group, dict) and "params" in group for group in groups) and all(
        isinstance(place, (tuple, list)) and len(place) == 3 for place in places.values()
    )


@contextmanager
def _without_notice() -> Iterator[None]:
    """Hide torch's remark that a process works alone: it is meant to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield
