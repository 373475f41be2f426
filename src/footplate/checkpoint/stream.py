"""Files that are hashed on their way to the disk, in one pass, and that leave the page cache alone."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import time
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

import numpy as np

from footplate.checkpoint.hashing import Bytes, Written, start_hash
from footplate.checkpoint.sums import BLOCK_BYTES
from footplate.disk import replacing

BUFFER_BYTES = 16 << 20  # measured: half the CPU time of 1 MiB
_DIRECT = getattr(os, "O_DIRECT", 0)  # Linux


_hashes: ContextVar[dict[Path, Written] | None] = ContextVar("hashes", default=None)


@contextlib.contextmanager
def collecting_hashes() -> Iterator[dict[Path, Written]]:
    """Hash the files that this thread writes with `writing`; yields their hashes by path."""
    found: dict[Path, Written] = {}
    before = _hashes.set(found)
    try:
        yield found
    finally:
        _hashes.reset(before)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[Stream]:
    """A file to write from start to end, which then takes the place of `path`.

    An error of the disk is raised as it is, whatever the code that writes makes of it.
    """
    hashes = _hashes.get()
    # a folder that collects hashes is new and private: there are no drafts of killed processes in it
    with replacing(path, sweeps=hashes is None) as file:
        stream = Stream(file.fileno(), is_hashed=hashes is not None)
        try:
            yield stream
        except Exception:
            if stream.error is not None:
                raise stream.error from None
            raise
        written = stream.finish()
    if hashes is not None and written is not None:
        hashes[path] = written


class Stream:
    """Writes into an open file, through a buffer, and hashes what goes through it.

    Large files bypass the page cache where the system can. To allocate its pages takes more time than all the
    rest of a save, most of all on virtual machines, and they would push out what training reads.

    Args:
        descriptor: The open file.
        is_hashed: Whether to hash.
    """

    def __init__(self, descriptor: int, is_hashed: bool) -> None:
        self.error: OSError | None = None
        self._descriptor = descriptor
        self._hash = start_hash() if is_hashed else None
        # memory of its own pages, as direct writes need; what is not used of it takes no room
        self._buffer = np.frombuffer(mmap.mmap(-1, BUFFER_BYTES), np.uint8)
        self._num_filled = 0
        self._size = 0

    def write(self, data: Bytes) -> int:
        """Add bytes; returns their number."""
        if self.error is not None:  # torch writes the end of its file also after an error
            raise self.error
        source = np.frombuffer(data, np.uint8)
        start = 0
        while start < len(source):
            # block by block, so that the hash finds the bytes in the cache
            num_bytes = min(BLOCK_BYTES - self._num_filled % BLOCK_BYTES, len(source) - start)
            end = self._num_filled + num_bytes
            self._buffer[self._num_filled : end] = source[start : start + num_bytes]
            start, self._num_filled = start + num_bytes, end
            if self._hash is not None and end % BLOCK_BYTES == 0:
                self._hash.update(self._buffer[end - BLOCK_BYTES : end].data)
            if end == BUFFER_BYTES:
                self._drain(is_direct=True)
        return len(source)

    def flush(self) -> None:
        """Do nothing, since `finish` does it; torch calls this."""

    def finish(self) -> Written | None:
        """Write the rest; returns what is known of the file, if a later change of it would show."""
        begun = self._num_filled % BLOCK_BYTES
        if self._hash is not None and begun:
            self._hash.update(self._buffer[self._num_filled - begun : self._num_filled].data)
        self._drain(is_direct=False)
        if self._hash is None:
            return None
        if os.utime in os.supports_fd:
            # the system's own times are those of its last tick: a change that follows at once would not show
            now = time.time_ns()
            try:
                os.utime(self._descriptor, ns=(now, now))
            except OSError:  # a share on which files belong to somebody else
                return None
        found = os.fstat(self._descriptor)
        return Written(self._size, found.st_ino, found.st_mtime_ns, self._hash.hexdigest())

    def _drain(self, is_direct: bool) -> None:
        """Empty the buffer into the file."""
        rest = self._buffer[: self._num_filled].data
        self._size += len(rest)
        self._num_filled = 0
        try:
            is_direct = is_direct and _set_direct(self._descriptor, True)
            while rest:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except OSError as error:
                    if not is_direct or error.errno != errno.EINVAL:
                        raise
                if is_direct and rest:  # written in part, or refused: what is left may not be whole pages
                    is_direct = _set_direct(self._descriptor, False)
            if is_direct:
                _set_direct(self._descriptor, False)
        except OSError as error:
            self.error = error
            raise


def _set_direct(descriptor: int, is_direct: bool) -> bool:
    """Have writes bypass the page cache, or not; returns whether they do."""
    if not _DIRECT:
        return False
    import fcntl  # not on Windows

    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | _DIRECT if is_direct else flags & ~_DIRECT)
    except OSError:  # this file system has no direct writes
        return False
    return is_direct
