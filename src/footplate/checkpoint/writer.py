"""One thread that writes while training goes on."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

logger = logging.getLogger(__name__)


class _Failure(NamedTuple):
    describe: str
    error: Exception


class BackgroundWriter:
    """Runs jobs on a thread of their own, one at a time, and keeps their errors until somebody asks.

    The interpreter does not end before a running job has: not after `sys.exit`, nor after an exception that
    nobody caught. A forked process neither waits for its parent's job nor reports it, and may submit its own.

    Args:
        write_in_place: Run each job in the caller, at once; errors are kept and reported all the same.
    """

    def __init__(self, write_in_place: bool = False) -> None:
        self.write_in_place = write_in_place
        self._thread: threading.Thread | None = None
        self._failures: deque[_Failure] = deque()
        self._process = os.getpid()
        # runs at exit, after the last job: an error keeps the frames it passed, and they keep the writer
        weakref.finalize(self, _report_rest, self._failures, self._process)

    @property
    def is_writing(self) -> bool:
        """Whether a job is running."""
        self._forget_if_forked()
        return self._thread is not None and self._thread.is_alive()

    def submit(self, job: Callable[[], None], describe: str) -> None:
        """Start a job; an earlier one is waited for first.

        Args:
            job: What to run.
            describe: What it does, for messages: "writing checkpoint-12".
        """
        self._wait()
        # when the main thread has ended, at exit, nobody would wait for a new one
        if self.write_in_place or not threading.main_thread().is_alive():
            self._run(job, describe)
            return
        # not a daemon: the interpreter waits for it
        thread = threading.Thread(target=self._run_apart, args=(job, describe), name=describe, daemon=False)
        try:
            thread.start()
        except RuntimeError:  # the system has no thread left
            self._run(job, describe)
        else:
            self._thread = thread

    def poll(self) -> Exception | None:
        """The error of a job that has ended, logged and returned once, oldest first; never waits."""
        self._forget_if_forked()
        return _report(self._failures.popleft()) if self._failures else None

    def join(self) -> Exception | None:
        """Wait for the running job; then as `poll`."""
        self._wait()
        return self.poll()

    def _wait(self) -> None:
        self._forget_if_forked()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, job: Callable[[], None], describe: str) -> None:
        try:
            job()
        except Exception as error:
            self._failures.append(_Failure(describe, error))

    def _run_apart(self, job: Callable[[], None], describe: str) -> None:
        try:
            self._run(job, describe)
        except BaseException as error:  # a thread that ends by SystemExit says nothing
            self._failures.append(_Failure(describe, RuntimeError(f"the thread was ended by {error!r}")))

    def _forget_if_forked(self) -> None:
        if self._process != os.getpid():  # threads stay with the parent, and so do its errors
            self._process, self._thread, self._failures = os.getpid(), None, deque()
            weakref.finalize(self, _report_rest, self._failures, self._process)


def _report(failure: _Failure) -> Exception:
    logger.error("%s failed: %s", failure.describe, failure.error, exc_info=failure.error)
    return failure.error


def _report_rest(failures: deque[_Failure], process: int) -> None:
    """Log what nobody asked for."""
    while failures and process == os.getpid():
        _report(failures.popleft())
