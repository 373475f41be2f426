"""Weights in several files, with an index that says which tensor is in which."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from footplate.checkpoint.tensors import find_aliases, save_tensors
from footplate.words import parse_bytes


def parse_shard_size(value: str | int | None) -> int | None:
    """The bytes that `max_shard_size` means; None for no limit."""
    num_bytes = parse_bytes(value) if isinstance(value, str) else value
    if value is None or (isinstance(num_bytes, int) and not isinstance(num_bytes, bool) and num_bytes > 0):
        return num_bytes
    raise ValueError(
        f"max_shard_size={value!r} is not a size. Give bytes as a whole number, or a size such as '5GB' or "
        "'512MiB'; None writes one file."
    )


def save_shards(state: Mapping[str, Any], path: Path, max_bytes: int | None = None) -> None:
    """Write one safetensors file, or several with an index beside them if one would be too large.

    Args:
        state: The tensors by name.
        path: The one file; shards are named after it, such as `model-00001-of-00003.safetensors`.
        max_bytes: The most that the tensors of one file take; a larger tensor has a file for itself.
    """
    shards = _split(state, max_bytes)
    names = [path.name]
    if len(shards) > 1:
        numbers = range(1, len(shards) + 1)
        names = [f"{path.stem}-{number:05d}-of-{len(shards):05d}{path.suffix}" for number in numbers]
    for name, shard in zip(names, shards, strict=True):
        save_tensors(shard, path.with_name(name))
    index = path.with_name(f"{path.name}.index.json")
    if len(shards) > 1:
        aliases = find_aliases(state)
        stored = [(name, set(shard) - set(aliases)) for name, shard in zip(names, shards, strict=True)]
        places = {tensor: name for name, tensors in stored for tensor in tensors}
        total = sum(state[tensor].nbytes for tensor in places)
        content = {"metadata": {"total_size": total}, "weight_map": places}
        index.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    else:
        index.unlink(missing_ok=True)
    _remove_earlier(path, names)


def _split(state: Mapping[str, Any], max_bytes: int | None) -> list[dict[str, Any]]:
    """The state in parts, in order; names of one tensor stay together, as it is stored once."""
    aliases = find_aliases(state)
    parts: list[dict[str, Any]] = [{}]
    part_of: dict[str, dict[str, Any]] = {}
    num_bytes = 0
    for name, tensor in state.items():
        if name in aliases:
            part_of[aliases[name]][name] = tensor
            continue
        size = getattr(tensor, "nbytes", 0)  # anything but a tensor is refused when it is written
        if max_bytes is not None and parts[-1] and num_bytes + size > max_bytes:
            parts.append({})
            num_bytes = 0
        num_bytes += size
        parts[-1][name] = tensor
        part_of[name] = parts[-1]
    return parts


def _remove_earlier(path: Path, names: list[str]) -> None:
    """Remove weights that an earlier save left here in another number of files: a reader could take them."""
    pattern = re.compile(rf"{re.escape(path.stem)}(-\d{{5}}-of-\d{{5}})?{re.escape(path.suffix)}")
    for name in os.listdir(path.parent):
        if pattern.fullmatch(name) and name not in names:
            path.with_name(name).unlink()
