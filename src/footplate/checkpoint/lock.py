"""An `output_dir` belongs to one run at a time: a lock that ends with its process.

Two things keep a second run out. The kernel's lock of a file, which ends with the process however it ends;
forked workers do not inherit it, unlike that of `flock`. And what the file says: which process took it and,
by its time of change, which is set every few seconds, that this process still runs. The second counts where
the first does not reach: on another machine whose file system does not share locks.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from footplate.checkpoint.process import Process, this_process

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows: the second of the two alone
    fcntl = None

logger = logging.getLogger(__name__)

LOCK_NAME = ".footplate.lock"
BEAT_SECONDS = 5.0  # between two signs of life
PATIENCE_SECONDS = 45.0  # how long a lock of another machine is watched for a sign of life
FORGOTTEN_SECONDS = 3600.0  # the age at which it is not watched any more
MAX_RECORD_BYTES = 4096
_RECORD_SECONDS = 1.0  # how long a lock may be held before the file says by whom


class FolderInUse(ValueError):
    """Another run writes into this folder; `owner` says which."""

    owner = "another run"


class Record(NamedTuple):
    """What the file of a lock says: who took it, and when."""

    process: Process
    began: float  # seconds since 1970

    def to_bytes(self) -> bytes:
        """The file's content; the folder may be looked at by people, so it is readable."""
        return json.dumps({**self.process._asdict(), "began": self.began}).encode() + b"\n"


class FolderLock:
    """The lock of one folder, held by this process until `release`.

    Args:
        folder: The folder to lock; it is made if it is not there.
    """

    def __init__(self, folder: str) -> None:
        self.folder, self.path = folder, os.path.join(folder, LOCK_NAME)
        self.num_holders = 1  # trainers of this process, one inside the other
        self.record = Record(this_process(), time.time())
        self._lost_to: str | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._descriptor: int | None = None
        try:
            os.makedirs(folder, exist_ok=True)
            self._descriptor = take(self.path, self.record)
        except FolderInUse:
            raise
        except OSError as error:
            logger.warning("%s cannot be locked against a second run: %s.", folder, error)
            return
        self._thread = threading.Thread(target=self._beat_until_ended, name="footplate-lock", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the system refuses another thread; the kernel's lock holds without it
            self._thread = None

    @property
    def is_held(self) -> bool:
        """Whether no other run can be writing into the folder."""
        return self._descriptor is not None and self._lost_to is None

    def check(self) -> None:
        """Raise if another run has taken the folder over since: this one must not write there any more."""
        if self._lost_to is not None:
            raise FolderInUse(
                f"{self.folder} was taken over by {self._lost_to}, since this run gave no sign of life for a "
                "while. Its checkpoints are not written there any more. End one of the two runs."
            )

    def release(self) -> None:
        """Let the next run in; does nothing in a forked process, where the lock is its parent's."""
        if os.getpid() != self.record.process.pid:
            return
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                # the file is empty where the disk was full
                is_own = _read_record(self._descriptor) in (self.record, None)
                if is_own and _is_still(self._descriptor, self.path):
                    os.unlink(self.path)  # before closing: the name must not vanish under the next owner
            os.close(self._descriptor)
        self._descriptor = None

    def _beat_until_ended(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            try:
                self._beat()
            except FolderInUse as error:
                self._lost_to = error.owner
                logger.error("%s is written by another run now: %s", self.folder, error)
                return
            except OSError as error:  # the disk is away for a moment, or the folder was removed
                logger.debug("%s: %s", self.path, error)

    def _beat(self) -> None:
        """Give a sign of life, and take back a lock that was lost without another run."""
        assert self._descriptor is not None
        if not _is_still(self._descriptor, self.path) or _read_record(self._descriptor) != self.record:
            if not os.path.isdir(self.folder):
                return  # removed: it is locked again when a checkpoint has made it again
            earlier, self._descriptor = self._descriptor, take(self.path, self.record, patience=0.0)
            os.close(earlier)
        # a copy of the folder closes another descriptor of this file, and so drops the kernel's lock
        _lock(self._descriptor)
        os.utime(self._descriptor if os.utime in os.supports_fd else self.path)


def seems_in_use(folder: str | os.PathLike[str]) -> bool:
    """Whether a run has given a sign of life in a folder just now; the lock is not touched."""
    try:
        return time.time() - os.stat(os.path.join(folder, LOCK_NAME)).st_mtime < PATIENCE_SECONDS
    except OSError:
        return False


# ---- one lock for all trainers of a process ----

_held: dict[str, FolderLock] = {}
_guard = threading.Lock()


@contextlib.contextmanager
def own_folder(folder: str) -> Iterator[FolderLock]:
    """Hold the lock of a folder; raises `FolderInUse` if another process has it.

    Trainers of one process share it: one may train inside a callback of the other.
    """
    lock = _enter(folder)
    try:
        yield lock
    finally:
        with _guard:
            lock.num_holders -= 1
            if lock.num_holders == 0:
                _held.pop(os.path.realpath(folder), None)
                lock.release()


def take_folder(
    stack: contextlib.ExitStack, folder: str
) -> tuple[FolderLock, None] | tuple[None, FolderInUse]:
    """The lock of a folder, held until `stack` is closed; or why another process has it."""
    try:
        return stack.enter_context(own_folder(folder)), None
    except FolderInUse as refusal:
        return None, refusal


def _enter(folder: str) -> FolderLock:
    with _guard:
        key = os.path.realpath(folder)
        lock = _held.get(key)
        if lock is None or lock.record.process.pid != os.getpid():  # a forked process has a copy of the table
            _held[key] = lock = FolderLock(folder)
            return lock
        lock.num_holders += 1
    logger.warning(
        "Two trainers of this process write into %s at the same time. Give each its own output_dir, so that "
        "neither replaces the other's checkpoints.",
        folder,
    )
    return lock


def _forget_guard() -> None:
    """Another thread may have held the guard when the process was forked, and is not there to let it go."""
    global _guard
    _guard = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_guard)


# ---- taking a lock ----


def take(path: str, record: Record, patience: float | None = None) -> int:
    """Lock the file at `path`, write `record` into it and return its descriptor; raises `FolderInUse`."""
    patience = PATIENCE_SECONDS if patience is None else patience
    while True:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0), 0o666)
        try:
            is_locked = _lock(descriptor)
            if _is_still(descriptor, path):  # else its owner removed it in this moment
                _check_free(descriptor, path, is_locked, patience)
                if is_locked is False and _is_still(descriptor, path):
                    os.unlink(
                        path
                    )  # a machine that is gone left the lock at the file server: make a new file
                # again: watching the file has closed it, and so dropped the kernel's lock
                elif is_locked and _lock(descriptor):
                    with contextlib.suppress(OSError):  # a full disk: the kernel's lock holds without it
                        _write_record(descriptor, record)
                    return descriptor
                elif is_locked is None:
                    _write_record(descriptor, record)
                    if _is_settled(descriptor, record):
                        return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _check_free(descriptor: int, path: str, is_locked: bool | None, patience: float) -> None:
    """Raise if the process that the file names still runs."""
    found = _read_record(descriptor)
    if is_locked is False and (found is None or found.process.is_alive() is False):
        found = _wait_for_record(descriptor)
        if found is None:
            raise _refusal(path, None)
    if found is None or found.process == this_process():
        return
    if is_locked is False and found.process.is_on_this_machine():
        raise _refusal(path, found)
    is_alive = found.process.is_alive()
    if is_alive is None:
        # on one machine, the kernel's lock is the truth
        is_over = is_locked is True and found.process.is_on_this_machine()
        is_alive = not is_over and _gives_sign_of_life(path, found, patience)
    if is_alive:
        raise _refusal(path, found)


def _wait_for_record(descriptor: int) -> Record | None:
    """What the process that holds the lock writes into the file right after it took it."""
    deadline = time.monotonic() + _RECORD_SECONDS
    while time.monotonic() < deadline:
        found = _read_record(descriptor)
        if found is not None and found.process.is_alive() is not False:
            return found
        time.sleep(0.01)
    return None


def _gives_sign_of_life(path: str, found: Record, patience: float) -> bool:
    """Whether the process of another machine that took this lock still runs.

    Clocks of two machines differ, so it is watched whether the file's time changes at all.
    """
    began = os.stat(path).st_mtime_ns
    age = time.time() - began / 1e9
    has_started_since = found.process.host == this_process().host and age > _uptime()
    if age > FORGOTTEN_SECONDS or has_started_since or patience <= 0:
        return patience <= 0
    logger.warning(
        "%s was locked by process %d on %s, which may have been killed: watching for %.0f seconds whether it "
        "still runs.",
        os.path.dirname(path),
        found.process.pid,
        found.process.host,
        patience,
    )
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        time.sleep(min(1.0, BEAT_SECONDS / 2))
        try:
            # a new opening: a network file system may keep a file's time for a minute otherwise
            with open(path, "rb") as file:
                if os.fstat(file.fileno()).st_mtime_ns != began:
                    return True
        except FileNotFoundError:
            return False
    return False


def _is_settled(descriptor: int, record: Record) -> bool:
    """Without the kernel's lock two processes may write at once; the last one has the lock."""
    time.sleep(0.2)
    return _read_record(descriptor) == record


def _refusal(path: str, found: Record | None) -> FolderInUse:
    folder = os.path.dirname(path)
    owner, stop = FolderInUse.owner, "end it"
    if found is not None:
        age = _say_duration(time.time() - found.began)
        owner = f"process {found.process.pid} on {found.process.host}, which began {age} ago"
        stop = f"end it (kill {found.process.pid}; it saves a checkpoint first)"
    error = FolderInUse(
        f"{folder} is in use by {owner}. Two runs in one output_dir would replace each other's checkpoints. "
        f"Wait until it ends, {stop}, or give this run another output_dir. If no run is there, delete {path}."
    )
    error.owner = owner
    return error


def _say_duration(seconds: float) -> str:
    for name, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            number = int(seconds // length)
            return f"{number} {name}{'s' if number > 1 else ''}"
    return f"{max(0, round(seconds))} seconds"


# ---- the file ----


def _lock(descriptor: int) -> bool | None:
    """Take the kernel's lock; False if another process has it, None where there are no such locks."""
    if fcntl is None:
        return None
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in (errno.EAGAIN, errno.EACCES) else None
    return True


def _is_still(descriptor: int, path: str) -> bool:
    """Whether the file that was opened still has this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _read_record(descriptor: int) -> Record | None:
    """What the file says; None if it is empty or damaged."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    return parse_record(os.read(descriptor, MAX_RECORD_BYTES))


def parse_record(content: bytes) -> Record | None:
    """What the content of a lock says; None if it is empty or damaged."""
    try:
        values: Any = json.loads(content)
        fields = {name: values[name] for name in Process._fields}
        is_sound = all(isinstance(value, int if name == "pid" else str) for name, value in fields.items())
        return Record(Process(**fields), float(values["began"])) if is_sound else None
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def _write_record(descriptor: int, record: Record) -> None:
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, record.to_bytes())


def _uptime() -> float:
    """Seconds since this machine started; endless where the system does not tell."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.clock_gettime(clock) if clock is not None else float("inf")
