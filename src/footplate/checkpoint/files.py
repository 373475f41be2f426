"""Read and write `torch.save` files; reading never runs code from a file."""

from __future__ import annotations

import os
import re
import zipfile
from collections import OrderedDict, deque
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import torch

from footplate.checkpoint.stand_ins import NUMERIC_KINDS, read_with_stand_ins
from footplate.checkpoint.stream import writing
from footplate.comm import map_nested
from footplate.disk import open_regular

Folder = str | os.PathLike[str]
Kind = tuple[type, Any]  # the type of a value, and the type of the numbers in it

_PLAIN = {bool, int, float, str, type(None), dict, list, tuple, OrderedDict, deque, timedelta, torch.Tensor}
_readable: set[Kind] = set()  # what this process has written and read back


def save_plain(values: Any, path: Path) -> None:
    """Write tensors, arrays of numbers and plain values; other scalars of numpy become plain ones.

    The file is read back if it holds kinds of values that were not read back before, so a state that no
    resume could read is an error now.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = map_nested(_plain_leaf, values)
    with writing(path) as stream:
        torch.save(plain, cast(IO[bytes], stream))
    new = _find_kinds(plain) - _readable
    if not new:
        return
    try:
        check_loadable(path)
    except ValueError as error:
        suspects = {kind for kind in new if kind[0] not in _PLAIN} or new
        names = ", ".join(sorted({f"{kind.__module__}.{kind.__qualname__}" for kind, _ in suspects}))
        raise ValueError(
            f"{path.name} was written and cannot be read again, so no run could resume from it. It holds "
            f"{names}. Return tensors, arrays of numbers, numbers, text, lists, dictionaries, deques or "
            f"durations from state_dict(). {error}"
        ) from None
    _readable.update(new)


def load_plain(path: Path) -> Any:
    """Read tensors, arrays of numbers and plain values to the host; anything else is a `ValueError`."""
    return _load(path, mmap=False)


def check_loadable(path: Path) -> None:
    """Raise what `load_plain` would raise, without reading the tensors of a file that `save_plain` wrote."""
    _load(path, mmap=True)


def _load(path: Path, mmap: bool) -> Any:
    try:
        _check_archive(path)
        return read_with_stand_ins(lambda: torch.load(path, map_location="cpu", weights_only=True, mmap=mmap))
    # without their cause: torch's text tells the reader to load the file with weights_only=False
    except (RuntimeError, EOFError, OSError, zipfile.BadZipFile) as error:
        if not isinstance(error, RecursionError):
            raise ValueError(f"{path} cannot be read; it may be cut short. {_reason(error)}") from None
        raise ValueError(f"{path} was not read: it is nested too deep.") from None
    except Exception as error:
        raise ValueError(
            f"{path} was not read: it is damaged, or holds Python objects beyond tensors and plain values, "
            f"and reading those could run code. {_reason(error)}"
        ) from None


def _check_archive(path: Path) -> None:
    """Raise if this is not a file, or is an archive that grows when it is read: torch does not compress."""
    with open_regular(path) as file:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                num_bytes = sum(entry.file_size for entry in archive.infolist())
            if num_bytes > os.fstat(file.fileno()).st_size:
                raise ValueError(f"It would grow to {num_bytes} bytes.")


def _reason(error: Exception) -> str:
    """The error's own sentence, without the advice that torch adds."""
    text = str(error).strip()
    name = re.search(r"GLOBAL (\S+) was not an allowed global", text)
    if name:
        return f"It names {name[1]}."
    inner = re.search(r"WeightsUnpickler error: ([^\n]*)", text)
    line = inner[1] if inner else text.partition("\n")[0]
    return "" if "weights_only" in line or "safe_globals" in line else line


def _plain_leaf(leaf: Any) -> Any:
    return leaf.item() if isinstance(leaf, np.generic) and leaf.dtype.kind not in NUMERIC_KINDS else leaf


def _find_kinds(values: Any) -> set[Kind]:
    """The kinds of all values in a structure, of its keys and of its containers."""
    kinds: set[Kind] = set()
    seen: set[int] = set()
    waiting = [values]
    while waiting:
        value = waiting.pop()
        kinds.add((type(value), getattr(value, "dtype", None)))
        if isinstance(value, (dict, list, tuple, set, frozenset, deque)) and id(value) not in seen:
            seen.add(id(value))
            waiting += value
            if isinstance(value, dict):
                waiting += value.values()
    return kinds
