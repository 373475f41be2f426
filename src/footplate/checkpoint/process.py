"""Which process a file belongs to, and whether that process still runs."""

from __future__ import annotations

import hashlib
import os
import socket
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """One process among all that ever ran on any machine: a process id alone is used again."""

    host: str
    boot: str  # changes when the machine starts; empty where the system does not tell
    namespace: str  # a container numbers its processes anew
    pid: int
    started: str  # the kernel's time of its start; empty where the system does not tell

    def is_on_this_machine(self) -> bool:
        """Whether it ran here and since the last start of this machine, as far as that can be told."""
        here = this_process()
        return self.boot == here.boot if self.boot and here.boot else self.host == here.host

    def is_alive(self) -> bool | None:
        """Whether it still runs; None if that cannot be told from here."""
        here = this_process()
        if self[:3] != here[:3] or os.name != "posix":  # elsewhere os.kill would end the process
            return None
        if self.started:
            started, is_over = _read_status(self.pid)
            if started:
                return started == self.started and not is_over
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except OSError:
            pass
        return None  # a process of that number runs, and it may be another one

    @property
    def tag(self) -> str:
        """A short text for names of files; `find_process` reads it."""
        return f"{_digest(self)}-{self.pid}-{self.started or 0}"


def this_process() -> Process:
    """The process that calls."""
    return _describe(os.getpid())


def find_tagged(tag: str) -> Process | None:
    """The process with this tag if it runs, or ran, where this one does; None for one of another machine."""
    place, _, rest = tag.partition("-")
    pid, _, started = rest.partition("-")
    here = this_process()
    if place != _digest(here) or not (pid.isascii() and pid.isdigit()):
        return None
    return here._replace(pid=int(pid), started="" if started == "0" else started)


@cache  # a forked process has another number, and so another entry
def _describe(pid: int) -> Process:
    return Process(
        socket.gethostname(),
        _read("/proc/sys/kernel/random/boot_id"),
        _read_link("/proc/self/ns/pid"),
        pid,
        _read_status(pid)[0],
    )


@cache
def _digest(process: Process) -> str:
    return hashlib.sha256("\n".join(process[:3]).encode()).hexdigest()[:8]


def _read_status(pid: int) -> tuple[str, bool]:
    """When a process started, and whether it has ended and only waits for its parent to notice."""
    # the name of the program, in parentheses, may hold spaces and parentheses of its own
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (fields[19], fields[0] in ("Z", "X", "x")) if len(fields) > 19 else ("", False)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _read_link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
