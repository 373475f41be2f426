"""Files that anybody may have put there: read without waiting and within limits, written in one step."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

logger = logging.getLogger(__name__)

StrPath = str | os.PathLike[str]

MAX_DEPTH = 64  # lists and objects inside one another; what footplate writes needs fewer than ten
_STALE_SECONDS = 3600
_STARTED = time.time()
_swept: set[str] = set()  # files beside which this process has looked for leftovers

# only some systems have these: without O_BINARY, Windows changes bytes on their way; O_NONBLOCK opens a pipe
# that nobody writes to at once instead of waiting
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_DRAFT = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


# ---- reading ----


def open_regular(path: StrPath) -> BinaryIO:
    """Open a regular file for reading; a pipe, a device or a folder is an `OSError`, and never waited for."""
    descriptor = os.open(path, _READ)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise OSError(f"{os.fspath(path)} is a pipe, a device or a folder, and a file was expected")


def read_bytes(path: StrPath, limit: int) -> bytes:
    """The content of a regular file of at most `limit` bytes; raises ValueError if it has more."""
    with open_regular(path) as file:
        is_small = os.fstat(file.fileno()).st_size <= limit
        content = file.read(limit + 1) if is_small else b""
    if not is_small or len(content) > limit:
        raise ValueError(f"it has more than {limit} bytes")
    return content


def read_json(path: StrPath, limit: int) -> dict[str, Any]:
    """The JSON object in a regular file of at most `limit` bytes; whatever else is there is a ValueError."""
    name = os.path.basename(path)
    try:
        values = parse_json(read_bytes(path, limit), unique_keys=True)
    except ValueError as error:
        raise ValueError(f"{name} is damaged: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{name} is damaged: it does not hold a JSON object")
    return values


def parse_json(content: bytes, unique_keys: bool = False) -> Any:
    """The value in JSON text; deep nesting, or a key that an object has twice, is a ValueError."""
    try:
        value = json.loads(content, object_pairs_hook=_make_object if unique_keys else None)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    # counting is fast, and few values have so many brackets
    if content.count(b"[") + content.count(b"{") > MAX_DEPTH and _is_deeper(value, MAX_DEPTH):
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    return value


def read_lines(file: BinaryIO, limit: int) -> Iterator[bytes]:
    """The lines of a file, each with its end; a line of more than `limit` bytes is left out."""
    while line := file.readline(limit + 1):
        if len(line) <= limit:
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(limit)


# ---- writing ----


def open_append(path: StrPath) -> int:
    """Open or make a file to append to; a pipe, socket or folder at its place is renamed, with a warning."""
    set_aside_unless_file(path)
    return os.open(path, _APPEND, 0o666)


def open_draft(path: StrPath) -> int:
    """Make a file that did not exist: what is there is removed first, and no link is followed."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return os.open(path, _DRAFT, 0o666)


@contextlib.contextmanager
def replacing(path: StrPath, sweeps: bool = True) -> Iterator[BinaryIO]:
    """A file to write into that takes the place of `path` afterwards: readers see the old or the new one.

    After an error the old file stays.

    Args:
        path: The file.
        sweeps: Remove drafts of it that killed processes have left.
    """
    target = Path(path)
    if sweeps:
        _sweep_once(target)
    owner = f"{_host_name()}-{os.getpid()}-{threading.get_ident()}"
    draft = target.with_name(f".{target.name}.{owner}.new")
    try:
        with os.fdopen(open_draft(draft), "wb") as file:
            yield file
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)  # it exists only if an error was raised


def follow_umask(paths: Iterable[Path]) -> None:
    """Give files that only their owner may read, as safetensors makes them, the rights of any new file."""
    private = [path for path in paths if stat.S_IMODE(path.stat().st_mode) == 0o600]
    if not private or os.name != "posix":
        return
    # a new file knows what the process allows; asking for it would change it for all threads for a moment
    probe = private[0].with_name(f".{private[0].name}.{os.getpid()}-{threading.get_ident()}.probe")
    descriptor = open_draft(probe)
    try:
        rights = stat.S_IMODE(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)
        os.unlink(probe)
    for path in private:
        path.chmod(rights)


def set_aside_unless_file(path: StrPath) -> None:
    """Rename a pipe, socket or folder that has the name of a file of ours; a device stays as it is."""
    try:
        kind = os.stat(path).st_mode
    except OSError:
        return
    if stat.S_ISREG(kind) or stat.S_ISCHR(kind):
        return
    aside = f"{os.fspath(path)}.set-aside-{time.time_ns()}"
    os.rename(path, aside)
    logger.warning("%s was not a file. It is now %s, and a new file takes its place.", path, aside)


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"it has {next(key for key in keys if keys.count(key) > 1)!r} twice")
    return values


def _is_deeper(value: Any, limit: int) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if items is None:
        return False
    return limit == 0 or any(_is_deeper(item, limit - 1) for item in items)


def _host_name() -> str:
    return "".join(letter for letter in socket.gethostname() if letter.isalnum()) or "host"


def _sweep_once(target: Path) -> None:
    """Remove the drafts of `target` that killed processes left; looks once per process and file."""
    key = os.path.abspath(target)
    if key in _swept:
        return
    _swept.add(key)
    prefix = f".{target.name}."
    with contextlib.suppress(OSError):  # a draft that stays costs only its room
        for name in os.listdir(target.parent):
            if name.startswith(prefix) and name.endswith(".new"):
                draft = target.with_name(name)
                if _is_stale(draft, name[len(prefix) :].removesuffix(".new").split("-")):
                    draft.unlink(missing_ok=True)


def _is_stale(draft: Path, owner: list[str]) -> bool:
    written = draft.lstat().st_mtime
    if time.time() - written > _STALE_SECONDS:
        return True
    if os.name != "posix" or len(owner) != 3 or owner[0] != _host_name() or not owner[1].isdecimal():
        return False  # a process of another machine may be writing it
    if int(owner[1]) == os.getpid():  # in a container, the process after a restart has the same number
        return written < _STARTED
    try:
        os.kill(int(owner[1]), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False
