"""Folders that appear whole or not at all: written beside, flushed, listed with their hashes, renamed."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open

from footplate.checkpoint.files import Folder

MANIFEST_NAME = "manifest.json"
MANIFEST_FORMAT = 1
# measured: with the processor's own instructions it is the fastest of hashlib that is not broken
HASH_NAME = "sha256"
TRAINER_STATE_NAME = "trainer_state.json"

WRITING, REPLACED, REMOVING = "writing", "replaced", "removing"

logger = logging.getLogger(__name__)


class Verdict(NamedTuple):
    """Whether a checkpoint can be trusted, why not, and whether it could be held against a manifest."""

    is_intact: bool
    reason: str
    has_manifest: bool


def hidden_sibling(final: Path, purpose: str) -> Path:
    """The name beside `final` under which it is written, kept while replaced, or removed."""
    return final.with_name(f".{final.name}.{purpose}")


def staging_folder(final: Folder) -> Path:
    """An empty hidden folder beside `final` to write into; what a dead run left there is removed.

    Args:
        final: The folder that `seal` will publish.
    """
    staging = hidden_sibling(Path(final), WRITING)
    _remove(staging)
    staging.mkdir(parents=True)
    return staging


def seal(staging: Folder, final: Folder) -> None:
    """Flush every file, write the manifest, and give the folder its name; a folder of that name is replaced.

    Args:
        staging: What `staging_folder(final)` gave, with everything written. An error leaves it for `discard`.
        final: The name to publish it under.
    """
    staging, final = Path(staging), Path(final)
    entries = {name: _flush_and_describe(staging / name) for name in _find_files(staging)}
    if not entries:
        raise ValueError(f"{staging} has no files, and a checkpoint of nothing is not sealed.")
    manifest = {"format": MANIFEST_FORMAT, "algorithm": HASH_NAME, "files": entries}
    with open(staging / MANIFEST_NAME, "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    for folder, _, _ in os.walk(staging, topdown=False):
        _flush_folder(Path(folder))
    _publish(staging, final)


def discard(folder: Path) -> None:
    """Delete a hidden folder; where that fails it stays hidden, and a warning says so."""
    try:
        _remove(folder)
    except OSError as error:
        logger.warning("%s is left over from a checkpoint and cannot be deleted: %s", folder, error)


def restore_replaced(final: Path) -> None:
    """Give a checkpoint its name back where a run died between moving it aside and publishing the next."""
    replaced = hidden_sibling(final, REPLACED)
    if os.path.lexists(final) or not replaced.is_dir():
        return
    try:
        os.rename(replaced, final)
    except OSError as error:
        if not final.is_dir():  # else another process was quicker
            logger.warning("%s is %s and cannot be given its name back: %s", replaced, final.name, error)


def verify_checkpoint(folder: Folder) -> Verdict:
    """Hold every file of a checkpoint against its manifest, sizes first, then hashes.

    A folder without a manifest, as transformers writes it, is intact when its state is readable and no
    file is cut short. Files that the manifest does not name may be there.

    Args:
        folder: A checkpoint's folder.
    """
    return _judge(Path(folder), with_hashes=True)


def is_whole(folder: Folder) -> bool:
    """Whether every file is there with its size: the check that reads no contents."""
    return _judge(Path(folder), with_hashes=False).is_intact


def check_free_space(folder: Folder, num_bytes: int) -> None:
    """Raise `OSError(ENOSPC)` where the file system of `folder` has less than `num_bytes` left."""
    path = Path(folder).absolute()
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    num_free = shutil.disk_usage(existing).free
    if num_free < num_bytes:
        raise OSError(
            errno.ENOSPC,
            f"A checkpoint needs {num_bytes / 1e9:.3f} GB and {num_free / 1e9:.3f} GB are free. Make room, "
            "lower save_total_limit, or set save_only_model=True",
            str(folder),
        )


# ---- writing ----


def _find_files(folder: Path) -> Iterator[str]:
    """Relative names of all files, with forward slashes, in a fixed order; without the manifest itself."""
    for inside, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(inside, name)
            if path.is_file() and path != folder / MANIFEST_NAME:
                yield path.relative_to(folder).as_posix()


def _flush_and_describe(path: Path) -> dict[str, Any]:
    """Bring a file to the disk; its size and hash."""
    # other systems than POSIX flush only what is open for writing
    with open(path, "rb" if os.name == "posix" else "r+b", buffering=0) as file:
        os.fsync(file.fileno())
        return {"size": os.fstat(file.fileno()).st_size, "hash": _hash(file)}


def _hash(file: Any) -> str:
    digest, chunk = hashlib.new(HASH_NAME), bytearray(1 << 20)
    view = memoryview(chunk)
    while num_read := file.readinto(chunk):  # reading and hashing both let other threads run
        digest.update(view[:num_read])
    return digest.hexdigest()


def _flush_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    if os.name != "posix":  # elsewhere folders cannot be opened
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (
            errno.EINVAL,
            errno.ENOTSUP,
        ):  # some network file systems flush names by themselves
            raise
    finally:
        os.close(descriptor)


def _publish(staging: Path, final: Path) -> None:
    """Rename; at every instant the old folder or the new one is there, if only for `restore_replaced`."""
    replaced = hidden_sibling(final, REPLACED)
    if os.path.lexists(final):
        _remove(replaced)  # from a replacement that went through, as `final` is there
        os.rename(final, replaced)
    try:
        os.rename(staging, final)
    except OSError:
        restore_replaced(final)
        raise
    _flush_folder(final.parent)
    discard(replaced)


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


# ---- checking ----


def _judge(folder: Path, with_hashes: bool) -> Verdict:
    has_manifest = os.path.lexists(folder / MANIFEST_NAME)
    try:
        if has_manifest:
            _check_against_manifest(folder, with_hashes)
        else:
            _check_foreign(folder)
    except (OSError, ValueError, RecursionError, AttributeError, SafetensorError) as error:
        return Verdict(False, str(error), has_manifest)  # whatever is in the files, the answer is a verdict
    return Verdict(True, "", has_manifest)


def _check_against_manifest(folder: Path, with_hashes: bool) -> None:
    entries = _read_manifest(folder / MANIFEST_NAME)
    for name, entry in entries.items():
        path = folder / name
        if not path.is_file():
            raise ValueError(f"{name} is missing")
        if (size := path.stat().st_size) != entry["size"]:
            raise ValueError(f"{name} has {size} bytes of {entry['size']}")
    for name, entry in entries.items() if with_hashes else ():
        with open(folder / name, "rb", buffering=0) as file:
            if _hash(file) != entry["hash"]:
                raise ValueError(f"{name} has other contents than were written")


def _read_manifest(path: Path) -> dict[str, dict[str, Any]]:
    """What the manifest says of each file; raises where it cannot be one that `seal` wrote."""
    manifest = _read_object(path)
    form, algorithm, entries = (manifest.get(key) for key in ("format", "algorithm", "files"))
    if (form, algorithm) != (MANIFEST_FORMAT, HASH_NAME):
        raise ValueError(
            f"{path.name} has format {form!r} with {algorithm!r}, and this version of footplate reads "
            f"format {MANIFEST_FORMAT} with {HASH_NAME!r}"
        )
    if not isinstance(entries, dict) or not entries:
        raise ValueError(f"{path.name} names no files")
    for name, entry in entries.items():
        is_inside = name and not Path(name).is_absolute() and ".." not in Path(name).parts
        if not is_inside or not isinstance(entry, dict) or not entry.keys() >= {"size", "hash"}:
            raise ValueError(f"{path.name} is damaged at {name!r}")
    return entries


def _read_object(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path.name} is damaged: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path.name} is damaged: it holds no names")
    return values


def _check_foreign(folder: Path) -> None:
    """Raise unless the state, which the original writes last, is readable, and no file is cut short."""
    if not folder.is_dir():
        raise ValueError("it is no folder")
    if not (folder / TRAINER_STATE_NAME).is_file():
        raise ValueError(f"{TRAINER_STATE_NAME} is missing")
    _read_object(folder / TRAINER_STATE_NAME)
    names = list(_find_files(folder))
    for name in names:
        _check_ending(folder / name)
    if not any(_is_weights(Path(name)) for name in names):
        raise ValueError("it has no weights")


def _is_weights(path: Path) -> bool:
    is_state = path.name.startswith(("training_args", "optimizer", "scheduler", "scaler", "rng_state"))
    return path.suffix in (".safetensors", ".bin", ".pt", ".pth", ".distcp") and not is_state


def _check_ending(path: Path) -> None:
    """Raise where a file ends before its own headers say, or an index names a shard that is not there."""
    if path.suffix == ".safetensors":
        with safe_open(path, framework="np"):  # compares the header with the size
            return
    if path.name.endswith(".index.json"):
        shards = _read_object(path).get("weight_map") or {}
        absent = sorted({str(name) for name in shards.values() if not (path.parent / str(name)).is_file()})
        if absent:
            raise ValueError(f"{', '.join(absent)} of {path.name} is missing")
    if path.suffix in (".bin", ".pt", ".pth"):
        with open(path, "rb") as file:
            start = file.read(4)
        if not start or (start.startswith(b"PK") and not zipfile.is_zipfile(path)):
            raise ValueError(f"{path.name} is cut short")
