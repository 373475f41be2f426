"""Whether a run is alive in a folder, told by its lock without touching it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from footplate.checkpoint.lock import LOCK_NAME, MAX_RECORD_BYTES, PATIENCE_SECONDS, parse_record
from footplate.checkpoint.process import this_process
from footplate.disk import read_bytes


class Life(NamedTuple):
    """What the lock of a folder tells of the process that took it."""

    is_alive: bool | None  # None: it is of another machine and has been silent for a while
    pid: int | None
    host: str | None  # None for this machine
    began: float  # when it took the lock, in seconds since 1970
    last_sign: float  # when it last gave a sign of life


def find_life(folder: str | os.PathLike[str]) -> Life | None:
    """What the lock of a folder tells; None without one: no run is there, or each has let it go."""
    path = Path(folder, LOCK_NAME)
    try:
        last_sign = path.stat().st_mtime
    except OSError:
        return None
    try:
        record = parse_record(read_bytes(path, MAX_RECORD_BYTES))
    except (OSError, ValueError):
        record = None
    is_recent = time.time() - last_sign < PATIENCE_SECONDS
    if record is None:  # empty where the disk was full: only its time tells
        return Life(is_recent, None, None, last_sign, last_sign)
    process, here = record.process, this_process()
    is_alive = process.is_alive()
    if is_alive is None:  # another machine or container: it is not seen from here, but its signs are
        was_here = process.host == here.host and process.boot != here.boot  # before this machine's last start
        is_alive = True if is_recent else False if was_here else None
    host = None if process.host == here.host else process.host
    return Life(is_alive, process.pid, host, record.began, last_sign)
