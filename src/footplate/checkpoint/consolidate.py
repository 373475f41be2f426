"""Join the shards of a checkpoint into weights that any library loads, without torch."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from footplate.checkpoint.hashing import HASH_NAME, start_hash
from footplate.checkpoint.kinds import MAX_INDEX_BYTES, holds_weights, is_read_by_resume
from footplate.checkpoint.safe_header import Listed, build_header
from footplate.checkpoint.seal import MANIFEST_NAME, MAX_MANIFEST_BYTES, read_manifest
from footplate.checkpoint.shard_layout import MODEL_SHARDS, Part, Stored, is_sharded_checkpoint, read_sharded
from footplate.disk import open_regular, read_json, replacing

WEIGHTS_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
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
    sources = _find_sources(stored)
    target.mkdir(parents=True, exist_ok=True)
    algorithm = HASH_NAME
    if (target / MANIFEST_NAME).is_file():
        algorithm = read_manifest(target).algorithm  # raises if it is damaged, before anything is written
    files = _split(sources, max_file_bytes)
    names = [WEIGHTS_NAME]
    if len(files) > 1:
        names = [f"model-{number:05d}-of-{len(files):05d}.safetensors" for number in range(1, len(files) + 1)]
    entries: dict[str, Any] = {}
    with ExitStack() as stack:  # all files are written before the first takes its name
        for name, tensors in zip(names, files, strict=True):
            file = HashedFile(stack.enter_context(replacing(target / name)), algorithm)
            _write_file(file, {tensor: stored[tensor] for tensor in tensors}, sources, aliases)
            entries[name] = file.finish()
        if len(files) > 1:
            file = HashedFile(stack.enter_context(replacing(target / INDEX_NAME)), algorithm)
            file.write(_describe(names, files, sources))
            entries[INDEX_NAME] = file.finish()
    _update_manifest(target, entries, _remove_earlier(target, entries))
    _copy_beside(source, target)
    return target / (INDEX_NAME if len(files) > 1 else WEIGHTS_NAME)


class HashedFile:
    """A file that is written from start to end, and what the manifest of a checkpoint says of it."""

    def __init__(self, file: BinaryIO, algorithm: str) -> None:
        self.file = file
        self.digest = start_hash(algorithm)
        self.num_bytes = 0

    def write(self, block: bytes) -> None:
        """Add bytes."""
        self.file.write(block)
        self.digest.update(block)
        self.num_bytes += len(block)

    def finish(self) -> dict[str, Any]:
        """Flush the file to the disk; returns its size and hash."""
        self.file.flush()
        os.fsync(self.file.fileno())
        return {"size": self.num_bytes, "hash": self.digest.hexdigest()}


def list_files(written: Path) -> list[Path]:
    """The files that `consolidate` wrote: the weights, and their index if there are several."""
    if written.suffix != ".json":
        return [written]
    shards = set(read_json(written, MAX_INDEX_BYTES)["weight_map"].values())
    return [*sorted(written.with_name(name) for name in shards), written]


def _find_sources(stored: Mapping[str, Stored]) -> dict[str, list[Source]]:
    """Where the bytes of each tensor's parts are, in the order of the parts."""
    paths = {part.path for tensor in stored.values() for part in tensor.parts}
    places = {path: _read_places(path) for path in paths}
    sources: dict[str, list[Source]] = {}
    for name, tensor in stored.items():
        parts = sorted((part for part in tensor.parts if prod(part.sizes)), key=lambda part: part.offsets)
        sources[name] = [Source(part, *places[part.path][name]) for part in parts]
    return sources


def _read_places(path: Path) -> dict[str, tuple[int, int]]:
    """For each tensor in a file that safetensors has checked, where its bytes begin and their number."""
    with open_regular(path) as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    places = {name: entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"}
    return {name: (8 + size + start, end - start) for name, (start, end) in places.items()}


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
    file: HashedFile,
    tensors: Mapping[str, Stored],
    sources: Mapping[str, list[Source]],
    aliases: Mapping[str, str],
) -> None:
    """Write a safetensors file, tensor after tensor."""
    own_aliases = {alias: name for alias, name in aliases.items() if name in tensors}
    listed = [
        Listed(name, tensor.dtype, tensor.shape, sum(source.num_bytes for source in sources[name]))
        for name, tensor in tensors.items()
    ]
    file.write(build_header(listed, {**own_aliases, "format": "pt"}))
    for name, tensor in tensors.items():
        for block in _read_blocks(tensor, sources[name]):
            file.write(block)


def _read_blocks(tensor: Stored, sources: list[Source]) -> Iterator[bytes]:
    """The bytes of a whole tensor: parts one after another, or row by row if they are side by side."""
    sizes = sources[0].part.sizes if sources else tensor.shape
    split = next((dim for dim, size in enumerate(tensor.shape) if sizes[dim] != size), 0)
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


def _describe(names: list[str], files: list[list[str]], sources: Mapping[str, list[Source]]) -> bytes:
    """The index that says which tensor is in which file."""
    places = {tensor: name for name, tensors in zip(names, files, strict=True) for tensor in tensors}
    total = sum(source.num_bytes for parts in sources.values() for source in parts)
    content = {"metadata": {"total_size": total}, "weight_map": places}
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()


def _remove_earlier(target: Path, names: Collection[str]) -> list[str]:
    """Remove whole weights that an earlier call left in another number of files: a reader could take them."""
    pattern = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index\.json")
    earlier = [name for name in os.listdir(target) if pattern.fullmatch(name) and name not in names]
    for name in earlier:
        (target / name).unlink()
    return earlier


def _update_manifest(target: Path, entries: Mapping[str, Any], removed: Collection[str]) -> None:
    """List the new files in the manifest of a checkpoint: with files that it leaves out, it is not intact."""
    path = target / MANIFEST_NAME
    if not path.is_file():
        return
    manifest = read_json(path, MAX_MANIFEST_BYTES)
    listed = read_manifest(target).files
    manifest["files"] = {name: entry for name, entry in listed.items() if name not in removed} | dict(entries)
    with replacing(path) as file:
        file.write(json.dumps(manifest, indent=1).encode())
        file.flush()
        os.fsync(file.fileno())


def _copy_beside(source: Path, target: Path) -> None:
    """Copy what belongs to the model beside its weights, such as its configuration and tokenizer."""
    if source.resolve() == target.resolve():
        return
    for path in source.iterdir():
        is_beside = not holds_weights([path.name]) and not is_read_by_resume(path.name)
        if is_beside and path.is_file() and path.suffix != ".bin":
            shutil.copyfile(path, target / path.name)
