"""Save and load the weights of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from footplate.checkpoint.adapters import has_adapters, load_adapters
from footplate.checkpoint.files import Folder
from footplate.checkpoint.shards import parse_shard_size, save_shards
from footplate.checkpoint.tensors import (
    State,
    check_shapes,
    find_aliases,
    read_shards,
    strip_wrappers,
    to_names_of,
)
from footplate.disk import follow_umask
from footplate.wrappers import unwrap_model

SAFE_WEIGHTS_NAME = "model.safetensors"
WEIGHTS_NAME = "pytorch_model.bin"


class LoadResult(NamedTuple):
    """The model's tensors that the files lack, and tensors of the files that the model does not have."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def save_weights(
    model: nn.Module, folder: Folder, state_dict: State | None = None, max_shard_size: str | int | None = None
) -> None:
    """Write what the model's `save_pretrained` writes, or `model.safetensors` for a plain module.

    Args:
        model: Any module; of a compiled or wrapped one, the module inside is written.
        folder: Where to write; created if it does not exist.
        state_dict: The tensors to write instead of the model's own.
        max_shard_size: Split larger weights into files of at most this size, such as "5GB"; None for the
            default of `save_pretrained`, and for one file of a plain module.
    """
    module: Any = unwrap_model(model)
    Path(folder).mkdir(parents=True, exist_ok=True)
    own = module.state_dict()
    plain_names = {name.replace("_orig_mod.", "") for name in own}
    state = {
        strip_wrappers(name, plain_names): tensor
        for name, tensor in (own if state_dict is None else state_dict).items()
    }
    options: dict[str, Any] = {} if max_shard_size is None else {"max_shard_size": max_shard_size}
    if not callable(getattr(module, "save_pretrained", None)):
        save_shards(state, Path(folder, SAFE_WEIGHTS_NAME), parse_shard_size(max_shard_size))
    elif state_dict is None and plain_names == set(own):
        module.save_pretrained(folder, **options)
    else:
        module.save_pretrained(folder, state_dict=state, **options)
    names = ("model*.safetensors", "adapter_model*.safetensors", "*/adapter_model*.safetensors")
    follow_umask(path for name in names for path in Path(folder).glob(name))


def load_weights(model: nn.Module, folder: Folder) -> LoadResult:
    """Copy a folder's weights into the model, from safetensors, `.bin`, shards of either, or adapter files.

    Args:
        model: The module to load into; its parameters stay the same objects, so optimizers and ties stay
            valid.
        folder: A folder that `save_weights`, `save_pretrained` or transformers' Trainer wrote.
    """
    module, path = unwrap_model(model), Path(folder)
    if has_adapters(module):
        result = load_adapters(module, path)
        if result is not None:
            return LoadResult(*result)
    result = _load_state(module, path)
    if result.missing_keys and result.unexpected_keys and hasattr(module, "from_pretrained"):
        # some architectures are stored with other names and shapes; only their class can convert them
        return _load_converted(module, path)
    return result


def _load_state(module: nn.Module, folder: Path) -> LoadResult:
    """Load file by file, so that only one shard is in memory at a time."""
    own = module.state_dict()
    # a state_dict() of the user's may leave out weights, which no file has then
    everything = {**own, **dict(module.named_parameters(remove_duplicate=False))}
    aliases = find_aliases(everything)
    loaded: set[str] = set()
    missing, unexpected, num_files = list(everything), [], 0
    for path, state in read_shards(folder, (SAFE_WEIGHTS_NAME, WEIGHTS_NAME)):
        named = to_names_of(own, state)
        result = _load_or_explain(module, named, path, own)
        still_missing = set(result.missing_keys)
        missing = [name for name in missing if name in still_missing]
        unexpected += result.unexpected_keys
        loaded |= {aliases.get(name, name) for name in named}
        num_files += 1
    if not num_files:
        raise ValueError(_nothing_found(folder))
    # a tied tensor is loaded if any of its names is
    return LoadResult([name for name in missing if aliases.get(name, name) not in loaded], unexpected)


def _load_or_explain(module: nn.Module, state: State, source: Path, own: State) -> Any:
    """Let the module load it: it may change its own sizes while it does. An error is explained."""
    try:
        return module.load_state_dict(state, strict=False)
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        check_shapes(own, state, source)  # raises if sizes are the reason
        raise ValueError(
            f"{source} does not fit this model ({type(module).__name__}): {error}. Build the model as it was "
            "when the file was written."
        ) from error


def _nothing_found(folder: Path) -> str:
    looked_for = f"{SAFE_WEIGHTS_NAME}, {WEIGHTS_NAME} or an index of their shards"
    if list(folder.glob("adapter_model.*")):
        return f"{folder} holds an adapter and no {looked_for}: wrap the model with PEFT before loading."
    return f"{folder} holds no weights: looked for {looked_for}."


def _load_converted(module: Any, folder: Path) -> LoadResult:
    """Load the folder with the model's class, then copy the converted weights."""
    stored, info = type(module).from_pretrained(folder, config=module.config, output_loading_info=True)
    own = module.state_dict()
    absent = set(info["missing_keys"])
    state = to_names_of(
        own, {name: tensor for name, tensor in stored.state_dict().items() if name not in absent}
    )
    _load_or_explain(module, state, folder, own)
    return LoadResult(sorted(absent), sorted(info["unexpected_keys"]))
