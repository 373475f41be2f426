"""Folders that appear complete or not at all: written hidden, flushed, listed with hashes, renamed."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from footplate.checkpoint.hashing import HASH_NAME, HASH_NAMES, Written, hash_file
from footplate.checkpoint.kinds import (
    check_ending,
    check_header,
    holds_weights,
    is_named_weights,
    is_read_by_resume,
)
from footplate.checkpoint.process import this_process
from footplate.disk import StrPath as Folder
from footplate.disk import follow_umask, open_draft, open_regular, read_json
from footplate.state import TRAINER_STATE_NAME

MANIFEST_NAME = "manifest.json"
MANIFEST_FORMAT = 1
MAX_MANIFEST_BYTES = 64 << 20  # a file takes some hundred bytes in it
MAX_STATE_BYTES = 1 << 30

WRITING, REPLACED, REMOVING = "writing", "replaced", "removing"
REHEARSING = ".check-"
in_progress: set[Path] = set()  # hidden folders that this process is writing
_numbers = count(1)

logger = logging.getLogger(__name__)


class Verdict(NamedTuple):
    """Whether a checkpoint is intact, the reason if not, and whether it has a manifest."""

    is_intact: bool
    reason: str
    has_manifest: bool


class Manifest(NamedTuple):
    """The name of the hash, and size and hash of each file."""

    algorithm: str
    files: dict[str, dict[str, Any]]


def rehearsal_prefix() -> str:
    """How the hidden folder of a rehearsal is called, which names the process."""
    return f"{REHEARSING}{this_process().tag}."


def hidden_sibling(final: Path, purpose: str) -> Path:
    """The hidden name beside `final` for writing it, for keeping what it replaces, or for removing it."""
    return final.with_name(f".{final.name}.{purpose}")


def staging_folder(final: Folder) -> Path:
    """Create an empty folder to write into, inside a hidden one beside `final` that names the process.

    It has the name of `final` itself: somebody's own `save_model` may ask whether it writes a checkpoint.

    Args:
        final: The folder that `seal` will publish.
    """
    # two processes, or two trainers in one, must never write into the same folder, whatever they lock
    hidden = hidden_sibling(Path(final), f"{this_process().tag}-{next(_numbers)}.{WRITING}")
    _remove(hidden)  # of a program that this process ran before it started another one in its place
    hidden.mkdir(parents=True)
    in_progress.add(hidden)
    staging = hidden / Path(final).name
    try:
        staging.mkdir()
    except OSError:
        discard(hidden)
        raise
    return staging


def seal(
    staging: Folder,
    final: Folder,
    run_id: str = "",
    unlisted: Collection[str] = (),
    hashes: Mapping[Path, Written] | None = None,
) -> None:
    """Flush every file, write the manifest, and rename the folder to `final`, replacing one of that name.

    A folder that does not hold a model is refused.

    Args:
        staging: The folder of `staging_folder(final)`, completely written. After an error, call `discard`.
        final: The folder to publish.
        run_id: The run that writes it, for the manifest: somebody may remove the state, which says it too.
        unlisted: Files that somebody may change again, so that the manifest does not name them, unless a
            resume reads them.
        hashes: Of files that were hashed as they were written; a file that has changed since is read.
    """
    staging, final = Path(staging), Path(final)
    names = list(find_files(staging))
    _check_holds_model(staging, names)
    follow_umask(staging / name for name in names if name.endswith(".safetensors"))
    known = hashes or {}
    entries = {name: _flush_and_describe(staging / name, known.get(staging / name)) for name in names}
    for name in unlisted:
        if not is_read_by_resume(name):
            del entries[name]
    named = {"run_id": run_id} if run_id else {}
    manifest = {"format": MANIFEST_FORMAT, "algorithm": HASH_NAME, **named, "files": entries}
    with os.fdopen(open_draft(staging / MANIFEST_NAME), "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    # the names must be on disk before the rename is: else a crash could publish a folder without its files
    for folder, _, _ in os.walk(staging, topdown=False):
        _flush_folder(Path(folder))
    _publish(staging, final)
    if staging.parent in in_progress:
        discard(staging)


def discard(folder: Path) -> None:
    """Delete a hidden folder, or the one that `folder` is in; if that fails, warn and leave it hidden."""
    hidden = folder.parent if folder.parent in in_progress else folder
    in_progress.discard(hidden)
    try:
        _remove(hidden)
    except OSError as error:
        logger.warning("%s is left over from a checkpoint and cannot be deleted: %s", hidden, error)


def restore_replaced(final: Path) -> None:
    """Rename a replaced checkpoint back if the run was killed before its replacement was published."""
    replaced = hidden_sibling(final, REPLACED)
    if os.path.lexists(final) or not replaced.is_dir():
        return
    try:
        os.rename(replaced, final)
    except OSError as error:
        if not final.is_dir():  # else another process has renamed it already
            logger.warning("%s cannot be renamed back to %s: %s", replaced, final.name, error)


def verify_checkpoint(folder: Folder) -> Verdict:
    """Compare every file of a checkpoint with its manifest, sizes first, then hashes.

    A folder without a manifest, as transformers writes it, is intact if its state is readable and no file
    is cut short. Files that the manifest does not name are allowed.

    Args:
        folder: A checkpoint's folder.
    """
    return _verify(Path(folder), with_hashes=True)


def is_whole(folder: Folder) -> bool:
    """Whether every file exists with its size: a fast check that does not read contents."""
    return _verify(Path(folder), with_hashes=False).is_intact


# ---- writing ----


def _check_holds_model(folder: Path, names: list[str]) -> None:
    """Raise unless there is a model, and its header can be read: hashes say nothing about what is missing."""
    if not names:
        raise ValueError(f"{folder} has no files: an empty checkpoint cannot be sealed.")
    if not holds_weights(names):
        raise ValueError(
            f"{folder} holds no weights, so it is not sealed. It has {', '.join(names)}: another process may "
            "have removed them, or save_model wrote to another folder than the one it was given."
        )
    for name in names:
        check_header(folder / name)


def find_files(folder: Path) -> Iterator[str]:
    """Relative names of all files except the manifest, with forward slashes, in a fixed order."""
    for inside, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(inside, name)
            if path.is_file() and path != folder / MANIFEST_NAME:
                yield path.relative_to(folder).as_posix()


def _flush_and_describe(path: Path, written: Written | None) -> dict[str, Any]:
    """Flush a file to the disk; return its size and hash."""
    # systems other than POSIX flush only files that are open for writing
    with open(path, "rb" if os.name == "posix" else "r+b", buffering=0) as file:
        os.fsync(file.fileno())
        found = os.fstat(file.fileno())
        is_known = written is not None and written.is_still(found)
        return {"size": found.st_size, "hash": written.hash if written and is_known else hash_file(file)}


def _flush_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk."""
    if os.name != "posix":  # other systems cannot open folders
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # network file systems that flush names by themselves refuse the call
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _publish(staging: Path, final: Path) -> None:
    """Rename to `final`; at every moment the old or the new folder exists, or `restore_replaced` finds it."""
    replaced = hidden_sibling(final, REPLACED)
    if os.path.lexists(final):
        _remove(replaced)  # a leftover: as `final` exists, its replacement was completed
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


def _verify(folder: Path, with_hashes: bool) -> Verdict:
    has_manifest = os.path.lexists(folder / MANIFEST_NAME)
    try:
        if has_manifest:
            _check_against_manifest(folder, with_hashes)
        else:
            check_foreign(folder)
    except (OSError, ValueError) as error:
        return Verdict(False, str(error), has_manifest)
    return Verdict(True, "", has_manifest)


def _check_against_manifest(folder: Path, with_hashes: bool) -> None:
    manifest = read_manifest(folder)
    for difference in find_differences(folder, manifest, with_hashes):
        raise ValueError(difference)
    if not holds_weights(manifest.files):
        raise ValueError("it has no weights")
    for name in manifest.files if with_hashes else ():
        check_header(folder / name)


def find_differences(folder: Path, manifest: Manifest, with_hashes: bool = True) -> Iterator[str]:
    """What is in a folder otherwise than its manifest says, each as a short sentence."""
    entries, same_size = manifest.files, []
    for name, entry in entries.items():
        path = folder / name
        if not path.is_file():
            yield f"{name} is missing"
        elif (size := path.stat().st_size) != entry["size"]:
            yield f"{name} has {size} bytes of {entry['size']}"
        else:
            same_size.append(name)
    # nothing vouches for a file that a resume would read and that is not listed
    unlisted = sorted(name for name in os.listdir(folder) if is_read_by_resume(name) and name not in entries)
    if unlisted:
        yield f"{MANIFEST_NAME} leaves out {', '.join(unlisted)}"
    for name in same_size if with_hashes else ():
        with open_regular(folder / name) as file:
            if hash_file(file, manifest.algorithm) != entries[name]["hash"]:
                yield f"{name} has changed since it was written"


def read_manifest(folder: Path) -> Manifest:
    """What the manifest says; raises if `seal` cannot have written this manifest."""
    path = folder / MANIFEST_NAME
    manifest = read_json(path, MAX_MANIFEST_BYTES)
    form, algorithm, entries = (manifest.get(key) for key in ("format", "algorithm", "files"))
    if form != MANIFEST_FORMAT or algorithm not in HASH_NAMES:
        raise ValueError(
            f"{path.name} has format {form!r} with {algorithm!r}, and this version of footplate reads "
            f"format {MANIFEST_FORMAT} with {' or '.join(map(repr, HASH_NAMES))}"
        )
    if not isinstance(entries, dict) or not entries:
        raise ValueError(f"{path.name} names no files")
    for name, entry in entries.items():
        # a path that leaves the folder would let a foreign manifest have any file of the machine read
        is_inside = name and not Path(name).is_absolute() and ".." not in Path(name).parts
        if not is_inside or "\0" in name or not _is_entry(entry):
            raise ValueError(f"{path.name} is damaged at {name!r}")
    return Manifest(algorithm, entries)


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or type(entry.get("size")) is not int:
        return False
    return isinstance(entry.get("hash"), str)


def check_foreign(folder: Path, needs_state: bool = True) -> None:
    """Raise unless the state, which transformers writes last, is readable and no file is cut short."""
    if not folder.is_dir():
        raise ValueError("it is not a folder")
    if needs_state and not (folder / TRAINER_STATE_NAME).is_file():
        raise ValueError(f"{TRAINER_STATE_NAME} is missing")
    if needs_state:
        read_json(folder / TRAINER_STATE_NAME, MAX_STATE_BYTES)
    names = list(find_files(folder))
    for name in names:
        check_header(folder / name)
        check_ending(folder / name)
    if not any(is_named_weights(name) for name in names):
        raise ValueError("it has no weights")
