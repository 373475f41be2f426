"""Where the parts of sharded tensors are in the files that the processes of a run wrote."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open

from footplate.checkpoint.kinds import MAX_INDEX_BYTES
from footplate.disk import parse_json, read_json

MODEL_SHARDS = "model_shards"
OPTIMIZER_SHARDS = "optimizer_shards"
INDEX_NAME = "shards.json"  # beside the files: which tensors there are, and other names of theirs

_OFFSETS = "DCP_SHARDING_INFO"  # where torch's writer says which part of a tensor a file holds


class Part(NamedTuple):
    """A part of a tensor in one file."""

    path: Path
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


class Stored(NamedTuple):
    """A tensor in one or several files."""

    shape: tuple[int, ...]
    dtype: str  # as safetensors names it, such as "F32"
    parts: list[Part]


def is_sharded_checkpoint(folder: str | Path) -> bool:
    """Whether each process wrote its own shards into this checkpoint."""
    return Path(folder, MODEL_SHARDS, INDEX_NAME).is_file()


def write_index(folder: Path, shapes: Mapping[str, Iterable[int]], aliases: Mapping[str, str]) -> None:
    """Write which tensors the files together hold, so that a missing file is noticed."""
    content = {
        "version": 1,
        "shapes": {name: list(shape) for name, shape in shapes.items()},
        "aliases": dict(aliases),
    }
    (folder / INDEX_NAME).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_sharded(folder: Path) -> tuple[dict[str, Stored], dict[str, str]]:
    """The tensors of a folder of shards, and their other names; whatever is missing or damaged raises."""
    if not (folder / INDEX_NAME).is_file():
        raise ValueError(f"{folder} has no {INDEX_NAME}, so it holds no shards of footplate.")
    index = read_json(folder / INDEX_NAME, MAX_INDEX_BYTES)
    shapes, aliases = index.get("shapes"), index.get("aliases")
    if not isinstance(shapes, dict) or not isinstance(aliases, dict) or not _are_shapes(shapes.values()):
        raise ValueError(f"{folder / INDEX_NAME} is damaged: it does not list shapes and other names.")
    if wrong := [alias for alias, name in aliases.items() if str(name) not in shapes]:
        raise ValueError(f"{folder / INDEX_NAME} is damaged: {wrong} are names of no tensor.")
    stored = read_layout(sorted(folder.glob("*.safetensors")))
    for name, shape in shapes.items():
        if name not in stored or stored[name].shape != tuple(shape):
            raise ValueError(
                f"{folder} lacks parts of {name}: a file of a process is missing. Copy all of it."
            )
    if surplus := sorted(stored.keys() - shapes.keys()):
        raise ValueError(f"{folder} holds files of another save too: {surplus[:3]} are not in {INDEX_NAME}.")
    return stored, aliases


def read_layout(paths: Iterable[Path]) -> dict[str, Stored]:
    """The tensors in these safetensors files, by the headers alone; parts that do not fit together raise."""
    parts: dict[str, list[Part]] = {}
    kinds: dict[str, str] = {}
    for path in paths:
        for name, kind, part in _read_parts(path):
            if kinds.setdefault(name, kind) != kind:
                raise ValueError(f"{path} holds {name} as {kind}, and another file as {kinds[name]}.")
            parts.setdefault(name, []).append(part)
    return {name: Stored(_join(name, found), kinds[name], found) for name, found in parts.items()}


def _read_parts(path: Path) -> list[tuple[str, str, Part]]:
    """Name, dtype and place of every tensor in a file."""
    try:
        with safe_open(path, framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
            found = {name: (part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()}
            text = (file.metadata() or {}).get(_OFFSETS)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} cannot be read; it may be cut short. {error}") from error
    offsets: Any = {} if text is None else parse_json(text.encode())
    if not isinstance(offsets, dict):
        raise ValueError(f"{path} is damaged: {_OFFSETS} is not an object.")
    return [
        (name, kind, Part(path, _find_offsets(path, name, offsets if text else None, sizes), sizes))
        for name, (kind, sizes) in found.items()
    ]


def _find_offsets(
    path: Path, name: str, offsets: dict[str, Any] | None, sizes: tuple[int, ...]
) -> tuple[int, ...]:
    """Where a part begins in its tensor; a file that says nothing holds whole tensors."""
    if offsets is None:
        return (0,) * len(sizes)
    entry = offsets.get(name)
    place: Any = entry.get("saved_offsets") if isinstance(entry, dict) else None
    if not _are_shapes([place]) or len(place) != len(sizes):
        raise ValueError(f"{path} is damaged: it does not say which part of {name} it holds.")
    return tuple(place)


def _join(name: str, parts: list[Part]) -> tuple[int, ...]:
    """The shape of the whole tensor; parts must follow one another along one dimension without a gap."""
    full = [part for part in parts if prod(part.sizes)] or parts[:1]
    if len({len(part.sizes) for part in full}) > 1:
        raise ValueError(f"The parts of {name} have different numbers of dimensions.")
    dims = range(len(full[0].sizes))
    shape = tuple(max(part.offsets[dim] + part.sizes[dim] for part in full) for dim in dims)
    split = [dim for dim in dims if any(part.sizes[dim] != shape[dim] for part in full)]
    place = 0
    for part in sorted(full, key=lambda part: part.offsets):
        if len(split) > 1 or (split and part.offsets[split[0]] != place) or (not split and len(full) > 1):
            raise ValueError(
                f"The parts of {name} do not make a whole: a file may be missing. Copy all of it."
            )
        place += part.sizes[split[0]] if split else 0
    return shape


def _are_shapes(values: Iterable[Any]) -> bool:
    """Whether each value is a list of whole numbers from zero."""
    return all(
        isinstance(value, list) and all(type(number) is int and number >= 0 for number in value)
        for value in values
    )
