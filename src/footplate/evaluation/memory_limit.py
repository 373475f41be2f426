"""How much of an evaluation stays in memory, and in which files the rest is stored."""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import sys
import tempfile
from functools import cached_property
from pathlib import Path
from typing import IO

from footplate.words import format_bytes, parse_bytes

logger = logging.getLogger(__name__)

SHARE_OF_FREE_MEMORY = 0.8  # the metrics function needs memory too
REMEDIES = (
    "Keep less of each row with preprocess_logits_for_metrics, measure batch by batch with "
    "batch_eval_metrics=True, keep the loss alone with prediction_loss_only=True, evaluate fewer rows with "
    "max_eval_samples, raise eval_memory_limit, or make room on the disk."
)
_CGROUPS = {  # folder of version 2 and of version 1; names of: limit, use, cached files within the use
    "/sys/fs/cgroup": ("memory.max", "memory.current", "inactive_file"),
    "/sys/fs/cgroup/memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def parse_memory_limit(value: int | float | str | None) -> int | None:
    """The bytes that `eval_memory_limit` means; None for no limit.

    Args:
        value: Bytes as an int, a size such as "2GB" or "512MiB", or a share of the memory up to 1.0.
    """
    if value is None:
        return None
    number = _number_of(value)
    if isinstance(number, float) and 0 < number <= 1:
        return int(number * total_memory())
    if isinstance(number, int) and number > 0:
        return number
    raise ValueError(
        f"eval_memory_limit={value!r} is not an amount of memory. Give bytes as a whole number, a size such "
        'as "2GB" or "512MiB", or a share of the memory as a float above 0 and up to 1.0; None sets no limit.'
    )


def _number_of(value: object) -> int | float | None:
    """An int for bytes, a float for a share, None for anything else."""
    if not isinstance(value, str):
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if re.fullmatch(r"\s*(\d+\.\d*|\.\d+)\s*", value, re.ASCII):  # "0.5": a share, on a command line
        return float(value)
    return parse_bytes(value)


def total_memory() -> int:
    """Bytes of memory that this process can have at most: those of the machine, or of its container."""
    is_known = hasattr(os, "sysconf")  # not on Windows
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if is_known else sys.maxsize
    return min([machine, *(limit for limit, _ in _container_limits())])


def free_memory() -> int:
    """Bytes of memory that can still be allocated, on the machine and in its container."""
    found = re.search(r"MemAvailable:\s+(\d+)", _read("/proc/meminfo"))
    machine = int(found[1]) * 1024 if found else total_memory()
    return max(0, min([machine, *(limit - used for limit, used in _container_limits())]))


def _container_limits() -> list[tuple[int, int]]:
    """Limit and use of each control group that sets a limit; cached files do not count as use."""
    limits = []
    for folder, (limit_file, use_file, cached) in _CGROUPS.items():
        limit, used = (_read(f"{folder}/{name}").strip() for name in (limit_file, use_file))
        if limit.isdigit() and used.isdigit():
            found = re.search(rf"^{cached} (\d+)", _read(f"{folder}/memory.stat"), re.MULTILINE)
            limits.append((int(limit), int(used) - (int(found[1]) if found else 0)))
    return limits


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError:
        return ""


class MemoryBudget:
    """How much memory the arrays of one evaluation may use; beyond that they are stored in unnamed files.

    Args:
        limit: Bytes that may stay in memory; None allows most of the free memory.
        folder: Where the files go; None uses the system's folder for temporary files.
    """

    def __init__(self, limit: int | None = None, folder: str | os.PathLike[str] | None = None) -> None:
        self._limit = limit
        self._folder = os.fspath(folder or tempfile.gettempdir())
        self._num_bytes_taken = 0
        self._is_spilling = False

    @cached_property
    def ceiling(self) -> int:
        """Bytes that may stay in memory; what is free is measured once, before the arrays take some of it."""
        if self._limit is not None:
            return self._limit
        num_processes = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)  # each of this machine keeps all rows
        return int(SHARE_OF_FREE_MEMORY * free_memory() / num_processes)

    def project(self, num_bytes: int) -> None:
        """Decide where an evaluation of this size is stored, before any of it is allocated."""
        if num_bytes > self.ceiling:
            self.spill(num_bytes)

    def take(self, num_bytes: int) -> bool:
        """Whether another `num_bytes` may be allocated in memory; if so, count them."""
        if not self._is_spilling and self._num_bytes_taken + num_bytes > self.ceiling:
            self.spill(self._num_bytes_taken + num_bytes)
        if not self._is_spilling:
            self._num_bytes_taken += num_bytes
        return not self._is_spilling

    def give_back(self, num_bytes: int) -> None:
        """Count `num_bytes` as free again."""
        self._num_bytes_taken -= num_bytes

    def spill(self, num_bytes: int) -> None:
        """Use files from now on; raise if the disk does not have enough space."""
        os.makedirs(self._folder, exist_ok=True)
        if num_bytes > shutil.disk_usage(self._folder).free:
            raise self._no_room(f"would keep {format_bytes(num_bytes)}")
        if not self._is_spilling:
            # a user who set a limit expects it to be reached
            logger.log(
                logging.WARNING if self._limit is None else logging.INFO,
                "This evaluation keeps %s, more than the %s it may hold in memory, so it uses a temporary "
                "file in %s. preprocess_logits_for_metrics keeps less; eval_memory_limit sets the limit.",
                format_bytes(num_bytes),
                format_bytes(self.ceiling),
                self._folder,
            )
        self._is_spilling = True

    def open_file(self) -> IO[bytes]:
        """A file that the system deletes when it is closed, or when the process is killed."""
        return tempfile.TemporaryFile(dir=self._folder, buffering=0)

    def write(self, file: IO[bytes], offset: int, data: memoryview) -> None:
        """Write all of `data`; a full disk raises an error that says so."""
        file.seek(offset)
        try:
            while data:
                data = data[file.write(data) :]  # a nearly full disk writes a part, then raises
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
                raise
            raise self._no_room(f"could not write more than {format_bytes(offset)}") from error

    def _no_room(self, what: str) -> ValueError:
        limit = "" if self._limit is None else f" (eval_memory_limit={format_bytes(self._limit)})"
        disk = format_bytes(shutil.disk_usage(self._folder).free)
        return ValueError(
            f"This evaluation {what} of predictions, labels and inputs, but there are only "
            f"{format_bytes(free_memory())} of free memory{limit} and {disk} of free disk space in "
            f"{self._folder}. {REMEDIES}"
        )
