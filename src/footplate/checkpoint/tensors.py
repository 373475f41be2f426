"""State dictionaries and the files that hold them: names, shared tensors, shapes."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch.nn.parameter import is_lazy

from footplate.checkpoint.files import load_plain
from footplate.checkpoint.kinds import MAX_INDEX_BYTES
from footplate.checkpoint.safe_header import Listed, build_header
from footplate.checkpoint.stream import writing
from footplate.disk import read_json

State = dict[str, Any]

_DTYPE_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def strip_wrappers(name: str, own_names: Collection[str]) -> str:
    """A tensor's name without the parts that compiling and data parallelism add."""
    name = name.replace("_orig_mod.", "")
    while name not in own_names and name.startswith("module."):
        name = name.removeprefix("module.")
    return name


def to_names_of(own: Mapping[str, Any], state: Mapping[str, Any]) -> State:
    """`state` with the names that `own` has for the same tensors; they differ if parts are compiled."""
    by_plain_name = {name.replace("_orig_mod.", ""): name for name in own}
    plain_names = {name: strip_wrappers(name, by_plain_name) for name in state}
    return {by_plain_name.get(plain_names[name], plain_names[name]): tensor for name, tensor in state.items()}


def find_aliases(state: Mapping[str, Any]) -> dict[str, str]:
    """For each name whose tensor has an earlier name too: that earlier name."""
    first_names: dict[Any, str] = {}
    aliases = {}
    for name, tensor in state.items():
        if not isinstance(tensor, torch.Tensor) or is_lazy(tensor) or tensor.is_meta or not tensor.numel():
            continue
        identity = (tensor.device, tensor.dtype, tensor.data_ptr(), tensor.shape, tensor.stride())
        first = first_names.setdefault(identity, name)
        if first != name:
            aliases[name] = first
    return aliases


def check_shapes(own: Mapping[str, Any], state: Mapping[str, Any], source: Path) -> None:
    """Raise if shapes in the file and in the model differ; the error names each such tensor."""
    wrong = [
        f"{name} is {tuple(tensor.shape)} in the file and {tuple(own[name].shape)} in the model"
        for name, tensor in state.items()
        if isinstance(tensor, torch.Tensor)
        and isinstance(own.get(name), torch.Tensor)
        and not is_lazy(own[name])
        and tensor.shape != own[name].shape
    ]
    if wrong:
        raise ValueError(
            f"{source} was written for a model of other sizes: {'; '.join(wrong)}. "
            "Build the model with the sizes of the file."
        )


def save_tensors(state: Mapping[str, Any], path: Path) -> None:
    """Write a safetensors file; a tensor with several names is stored once, other names as metadata."""
    other = [name for name, value in state.items() if not isinstance(value, torch.Tensor)]
    if other:
        raise TypeError(
            f"A safetensors file holds tensors only, and the model's state has other values: {other}. "
            "Return tensors from get_extra_state, or give the model a save_pretrained of its own."
        )
    aliases = find_aliases(state)
    stored = {name: tensor.detach() for name, tensor in state.items() if name not in aliases}
    metadata = {**aliases, "format": "pt"}
    if sys.byteorder == "little" and all(_is_plain(tensor) for tensor in stored.values()):
        _write(stored, path, metadata)
    else:  # it knows more kinds of tensors, and says which it refuses
        save_file({name: _for_file(tensor) for name, tensor in stored.items()}, path, metadata=metadata)


def _is_plain(tensor: torch.Tensor) -> bool:
    is_known = tensor.dtype in _DTYPE_NAMES and tensor.layout is torch.strided and not tensor.is_meta
    return is_known and type(tensor) is torch.Tensor


def _write(tensors: Mapping[str, torch.Tensor], path: Path, metadata: Mapping[str, str]) -> None:
    """Write a safetensors file, tensor after tensor."""
    # wide elements first, as safetensors does: each tensor begins at a multiple of its width
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    listed = [
        Listed(name, _DTYPE_NAMES[tensor.dtype], tensor.shape, tensor.nbytes)
        for name, tensor in ((name, tensors[name]) for name in names)
    ]
    with writing(path) as stream:
        stream.write(build_header(listed, metadata))
        for name in names:
            alone = tensors[name].cpu().contiguous().resolve_neg().reshape(-1)
            stream.write(alone.view(torch.uint8).numpy().data)


def _for_file(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor on the host, contiguous, in memory that holds nothing else."""
    alone = tensor.cpu().contiguous()
    return alone.clone() if alone.untyped_storage().nbytes() > alone.nbytes else alone


def load_tensors(path: Path) -> State:
    """Read one safetensors or `.bin` file to the host; a shared tensor gets all its names."""
    if path.suffix != ".safetensors":
        state = load_plain(path)
        if not isinstance(state, Mapping):
            raise ValueError(f"{path} holds a {type(state).__name__}; a dictionary of tensors was expected.")
        return dict(state)
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            aliases = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except SafetensorError as error:
        raise ValueError(f"{path} cannot be read; it may be cut short. {error}") from error
    return tensors | {alias: tensors[name] for alias, name in aliases.items() if name in tensors}


def read_shards(folder: Path, names: Collection[str]) -> Iterator[tuple[Path, State]]:
    """Read the first of `names` that the folder has, as one file or as shards, one after another."""
    candidates = (_find_files(folder, name) for name in names)
    for path in next(filter(None, candidates), []):
        yield path, load_tensors(path)


def _find_files(folder: Path, name: str) -> list[Path]:
    """The file itself, or the shards that its index names."""
    if (folder / name).is_file():
        return [folder / name]
    index = folder / f"{name}.index.json"
    if not index.is_file():
        return []
    shard_names = read_json(index, MAX_INDEX_BYTES).get("weight_map")
    if not isinstance(shard_names, dict) or not all(isinstance(name, str) for name in shard_names.values()):
        raise ValueError(f"{index} is damaged: its weight_map does not name a file for each tensor.")
    shards = sorted(set(shard_names.values()))
    absent = [shard for shard in shards if Path(shard).name != shard or not (folder / shard).is_file()]
    if absent:
        raise ValueError(f"{index} names files that {folder} does not have: {absent}. Copy the whole folder.")
    return [folder / shard for shard in shards]
