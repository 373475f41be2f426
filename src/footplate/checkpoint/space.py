"""Room on the disk: whether there is enough, and whether the lack of it made a write fail."""

from __future__ import annotations

import errno
import re
import shutil
from pathlib import Path

from safetensors import SafetensorError

from footplate.disk import StrPath as Folder
from footplate.words import format_bytes

FULL_BELOW = 1 << 20  # bytes free: no checkpoint is written in them


def check_free_space(folder: Folder, num_bytes: int) -> None:
    """Raise `OSError(ENOSPC)` if the file system of `folder` has less than `num_bytes` free."""
    num_free = _find_free_space(folder)
    if num_free < num_bytes:
        raise OSError(
            errno.ENOSPC,
            f"A checkpoint needs {format_bytes(num_bytes)} and {format_bytes(num_free)} are free. Make room, "
            "lower save_total_limit, or set save_only_model=True",
            str(folder),
        )


def is_refused_by_disk(error: BaseException) -> bool:
    """Whether a write failed because of the disk, not because of what was to be written."""
    if isinstance(error, RuntimeError):  # of torch, which does not hand on the number of the error
        return "inline_container" in str(error) or "PytorchStreamWriter" in str(error)
    return isinstance(error, (OSError, SafetensorError))


def is_out_of_space(error: BaseException, folder: Folder) -> bool:
    """Whether a write failed because the disk was full; ask before what was written is deleted."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    if isinstance(error, SafetensorError):
        found = re.search(r"os error (\d+)", str(error))
        return found is not None and int(found[1]) in (errno.ENOSPC, errno.EDQUOT)
    return is_refused_by_disk(error) and _find_free_space(folder) < FULL_BELOW


def _find_free_space(folder: Folder) -> int:
    path = Path(folder).absolute()
    return shutil.disk_usage(next(parent for parent in (path, *path.parents) if parent.exists())).free
