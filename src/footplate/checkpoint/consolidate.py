"""Join the shards of a checkpoint into weights that any library loads, without torch."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from footplate.checkpoint.kinds import holds_weights, is_read_by_resume
from footplate.checkpoint.shard_layout import MODEL_SHARDS, Part, Stored, is_sharded_checkpoint, read_sharded
from footplate.disk import open_regular, replacing

WEIGHTS_NAME = "model.safetensors"
MAX_FILE_BYTES = 5_000_000_000

_BLOCK_BYTES = 16 << 20


class Source(NamedTuple):
    """The bytes of one part of a tensor."""

    part: Part
    start: int
    num_bytes: int


def consolidate(
    folder: str | Path, output: str | Path | None = None, max_file_bytes: int = MAX_FILE_BYTES
) -> Path:
    """Write the whole weights of a sharded checkpoint; returns the file, or the index of several.

    Args:
        folder: A checkpoint whose processes each wrote their own shards.
        output: Where to write; the checkpoint itself by default. Another folder also gets the configuration
            and tokenizer files of the checkpoint.
        max_file_bytes: Tensors of one file take at most this much; a larger tensor has a file for itself.
    """
    source, target = Path(folder), Path(folder if output is None else output)
    if not is_sharded_checkpoint(source):
        raise ValueError(
            f"{source} holds no shards: there is no {MODEL_SHARDS} folder in it. Give a checkpoint of a run "
            "with fsdp; weights of other runs are whole already."
        )
    stored, aliases = read_sharded(source / MODEL_SHARDS)
    sources = {name: _find_sources(name, tensor) for name, tensor in stored.items()}
    target.mkdir(parents=True, exist_ok=True)
    files = _split(sources, max_file_bytes)
    names = [WEIGHTS_NAME]
    if len(files) > 1:
        names = [f"model-{number:05d}-of-{len(files):05d}.safetensors" for number in range(1, len(files) + 1)]
    for name, tensors in zip(names, files, strict=True):
        with replacing(target / name) as file:
            _write_file(file, {tensor: stored[tensor] for tensor in tensors}, sources, aliases)
            os.fsync(file.fileno())
    _copy_beside(source, target)
    return _write_index(target, names, files, sources)


def _find_sources(name: str, stored: Stored) -> list[Source]:
    """Where the bytes of a tensor's parts are, in the order of the parts."""
    sources = []
    for part in sorted(stored.parts, key=lambda part: part.offsets):
        if prod(part.sizes):
            start, end = _read_header(part.path)[name]
            sources.append(Source(part, start, end - start))
    return sources


@lru_cache(maxsize=4096)
def _read_header(path: Path) -> dict[str, tuple[int, int]]:
    """For each tensor in a file that safetensors has checked, where its bytes begin and end."""
    with open_regular(path) as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    base = 8 + size
    places = {name: entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"}
    return {name: (base + start, base + end) for name, (start, end) in places.items()}


def _split(sources: Mapping[str, list[Source]], max_bytes: int) -> list[list[str]]:
    """The names of the tensors of each file."""
    files: list[list[str]] = [[]]
    filled = 0
    for name, parts in sources.items():
        size = sum(part.num_bytes for part in parts)
        if files[-1] and filled + size > max_bytes:
            files.append([])
            filled = 0
        files[-1].append(name)
        filled += size
    return files


def _write_file(
    file: BinaryIO,
    tensors: Mapping[str, Stored],
    sources: Mapping[str, list[Source]],
    aliases: Mapping[str, str],
) -> None:
    """Write a safetensors file, tensor after tensor."""
    own_aliases = {alias: name for alias, name in aliases.items() if name in tensors}
    header: dict[str, Any] = {"__metadata__": {**own_aliases, "format": "pt"}}
    place = 0
    for name, tensor in tensors.items():
        end = place + sum(source.num_bytes for source in sources[name])
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # readers expect the tensors at a multiple of eight
    file.write(len(text).to_bytes(8, "little") + text)
    for name, tensor in tensors.items():
        for block in _read_blocks(tensor, sources[name]):
            file.write(block)


def _read_blocks(tensor: Stored, sources: list[Source]) -> Iterator[bytes]:
    """The bytes of a whole tensor: parts one after another, or row by row if they are side by side."""
    split = next(
        (dim for dim, size in enumerate(tensor.shape) if sources and sources[0].part.sizes[dim] != size), 0
    )
    num_rows = prod(tensor.shape[:split])
    with ExitStack() as stack:
        files = [stack.enter_context(open_regular(source.part.path)) for source in sources]
        for row in range(num_rows):
            for file, source in zip(files, sources, strict=True):
                length = source.num_bytes // num_rows
                file.seek(source.start + row * length)
                yield from _read_exactly(file, length)


def _read_exactly(file: BinaryIO, num_bytes: int) -> Iterator[bytes]:
    """This many bytes in blocks."""
    while num_bytes:
        block = file.read(min(num_bytes, _BLOCK_BYTES))
        if not block:
            raise ValueError(f"{file.name} is cut short.")
        num_bytes -= len(block)
        yield block


def _write_index(
    target: Path, names: list[str], files: list[list[str]], sources: Mapping[str, list[Source]]
) -> Path:
    """Write which tensor is in which file, if there are several; remove weights of an earlier call."""
    index = target / f"{WEIGHTS_NAME}.index.json"
    for path in target.glob("model*.safetensors"):
        if re.fullmatch(r"model(-\d{5}-of-\d{5})?\.safetensors", path.name) and path.name not in names:
            path.unlink()  # a reader could take them
    if len(names) == 1:
        index.unlink(missing_ok=True)
        return target / names[0]
    places = {tensor: name for name, tensors in zip(names, files, strict=True) for tensor in tensors}
    total = sum(source.num_bytes for parts in sources.values() for source in parts)
    content = {"metadata": {"total_size": total}, "weight_map": places}
    with replacing(index) as file:
        file.write((json.dumps(content, indent=2, sort_keys=True) + "\n").encode())
    return index


def _copy_beside(source: Path, target: Path) -> None:
    """Copy what belongs to the model beside its weights, such as its configuration and tokenizer."""
    if source.resolve() == target.resolve():
        return
    for path in source.iterdir():
        is_beside = not holds_weights([path.name]) and not is_read_by_resume(path.name)
        if is_beside and path.is_file() and path.suffix != ".bin":
            shutil.copyfile(path, target / path.name)
