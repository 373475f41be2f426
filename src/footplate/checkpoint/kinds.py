"""What the files of a checkpoint are: weights, state of the run, or something that belongs to the model."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from safetensors import SafetensorError, safe_open

from footplate.disk import open_regular, read_json

MAX_INDEX_BYTES = 64 << 20

_STATE = re.compile(
    r"training_args|optimizer|scheduler|scaler|rng_state|random_states|(trainer_state\.json|loader\.pt|ranks\.pt)$"
)
# what `save_pretrained` of models, tokenizers and processors writes beside weights
_BESIDE = re.compile(
    r"(config|generation_config|adapter_config|special_tokens_map|added_tokens|(\w+_)?(pre)?processor_config)\.json"
    r"|tokenizer.*|chat_template.*|vocab\.\w+|merges\.txt|spiece\.model|sentencepiece.*\.model|.*\.(index\.json|md|py)"
)
# what a resume reads, whatever the manifest says
_READ_BY_RESUME = re.compile(
    r"(model\.safetensors|pytorch_model\.bin)(\.index\.json)?"
    r"|(optimizer|scheduler|scaler|loader|ranks)\.pt|rng_state(_\d+)?\.pth|(model|optimizer)_shards/.+|training_args\.bin|trainer_state\.json"
)


def holds_weights(names: Iterable[str]) -> bool:
    """Whether one of these files can be the model: somebody's own `save_model` may name it as it likes.

    Args:
        names: Files of a checkpoint, relative to its folder, with forward slashes.
    """
    return any(not _is_state(name) and not _BESIDE.fullmatch(PurePosixPath(name).name) for name in names)


def is_named_weights(name: str) -> bool:
    """Whether a file is named as weights are in a folder that somebody else wrote."""
    is_kind = PurePosixPath(name).suffix in (".safetensors", ".bin", ".pt", ".pth", ".distcp")
    return is_kind and not _is_state(name)


def is_read_by_resume(name: str) -> bool:
    """Whether a resume would read a file of this name."""
    return _READ_BY_RESUME.fullmatch(name) is not None


def check_header(path: Path) -> None:
    """Raise ValueError if weights are shorter than their header says, or an index names a missing shard."""
    if path.suffix == ".safetensors":
        try:
            with safe_open(path, framework="np"):  # compares the header with the size
                return
        except SafetensorError as error:
            raise ValueError(f"{path.name} cannot be read: {error}") from error
    if path.name.endswith(".index.json"):
        shards = read_json(path, MAX_INDEX_BYTES).get("weight_map") or {}
        if not isinstance(shards, dict):
            raise ValueError(f"{path.name} names no shards")
        absent = sorted({str(name) for name in shards.values() if not (path.parent / str(name)).is_file()})
        if absent:
            raise ValueError(f"{', '.join(absent)} of {path.name} is missing")


def check_ending(path: Path) -> None:
    """Raise ValueError if a file of torch is cut short, as far as its first and last bytes say."""
    if path.suffix in (".bin", ".pt", ".pth"):
        with open_regular(path) as file:
            start = file.read(4)
            if not start or (start.startswith(b"PK") and not zipfile.is_zipfile(file)):
                raise ValueError(f"{path.name} is cut short")


def _is_state(name: str) -> bool:
    return any(_STATE.match(part) for part in (name, PurePosixPath(name).name))
