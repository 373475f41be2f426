"""One thread that writes while training continues."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

logger = logging.getLogger(__name__)

NICER_BY = 10  # a tenth of the time of a thread that computes beside it, if there is no processor left


class _Failure(NamedTuple):
    description: str
    error: Exception


class BackgroundWriter:
    """Runs jobs on a separate thread, one at a time, and keeps their errors until `poll` or `join`.

    The interpreter waits for a running job before it ends, also after `sys.exit` or an uncaught exception.
    A forked process does not wait for its parent's job and does not report it; it can submit its own jobs.

    Args:
        write_in_place: Run each job at once, in the calling thread; errors are kept in the same way.
    """

    def __init__(self, write_in_place: bool = False) -> None:
        self.write_in_place = write_in_place
        self._thread: threading.Thread | None = None
        self._is_done = threading.Event()  # one for each job
        self._failures: deque[_Failure] = deque()
        self._process = os.getpid()
        # also runs at exit, after the last job: an error keeps its frames alive, and they keep the writer
        weakref.finalize(self, _report_rest, self._failures, self._process)

    def submit(self, job: Callable[[], None], description: str) -> None:
        """Wait for the earlier job, then start this one.

        Args:
            job: The function to run.
            description: What it does, for messages: "writing checkpoint-12".
        """
        self._wait()
        # after the main thread has ended, the interpreter would not wait for a new thread
        if self.write_in_place or not threading.main_thread().is_alive():
            self._run(job, description)
            return
        is_done = threading.Event()
        # never a daemon, even if the caller is one: the interpreter must wait for it
        thread = threading.Thread(
            target=self._run_in_thread, args=(job, description, is_done), name=description, daemon=False
        )
        try:
            thread.start()
        except RuntimeError:  # the system refuses another thread
            self._run(job, description)
        else:
            self._thread, self._is_done = thread, is_done

    def poll(self) -> Exception | None:
        """Log and return the oldest error that was not reported yet; never waits."""
        if not self._failures:  # asked after every update
            return None
        self._forget_if_forked()
        return _report(self._failures.popleft()) if self._failures else None

    def join(self) -> Exception | None:
        """Wait for the running job, then do what `poll` does."""
        self._wait()
        return self.poll()

    def _wait(self) -> None:
        self._forget_if_forked()
        if self._thread is not None:
            # until Python 3.13, a thread counts as ended as soon as Ctrl-C interrupts a join() of it
            self._is_done.wait()
            self._thread.join()
            self._thread = None

    def _run(self, job: Callable[[], None], description: str) -> None:
        try:
            job()
        except Exception as error:
            self._failures.append(_Failure(description, error))

    def _run_in_thread(self, job: Callable[[], None], description: str, is_done: threading.Event) -> None:
        try:
            _lower_priority()
            self._run(job, description)
        except BaseException as error:  # Python ends a thread on SystemExit without any message
            self._failures.append(_Failure(description, RuntimeError(f"the thread was ended by {error!r}")))
        finally:
            is_done.set()

    def _forget_if_forked(self) -> None:
        if self._process != os.getpid():  # threads and errors stay with the parent process
            self._process, self._thread, self._failures = os.getpid(), None, deque()
            weakref.finalize(self, _report_rest, self._failures, self._process)


def _lower_priority() -> None:
    """Let this thread wait while others compute, where each thread has a priority of its own."""
    if sys.platform == "linux":  # elsewhere the call would be for the whole process
        with contextlib.suppress(OSError):
            thread = threading.get_native_id()
            niceness = os.getpriority(os.PRIO_PROCESS, thread) + NICER_BY
            os.setpriority(os.PRIO_PROCESS, thread, niceness)  # the system stops at 19 by itself


def _report(failure: _Failure) -> Exception:
    logger.error("%s failed: %s", failure.description, failure.error, exc_info=failure.error)
    return failure.error


def _report_rest(failures: deque[_Failure], process: int) -> None:
    """Log the errors that `poll` and `join` have not reported."""
    while failures and process == os.getpid():
        _report(failures.popleft())
