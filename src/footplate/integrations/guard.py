"""Protects a run from its trackers: each has its own thread, so that a failing service stops nothing."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

logger = logging.getLogger(__name__)

Call = tuple[Callable[..., Any], tuple[Any, ...]]

RETRY_DELAYS = (0.5, 2.0, 8.0)  # seconds before the second, third and fourth attempt at a call
QUEUE_SIZE = 10_000  # calls that may wait for a slow service
# at the end of training, wait this many seconds, or this share of the time since the guard started
LEAST_WAIT, WAIT_SHARE = 2.0, 0.03
TRAIN_PATIENCE = 3.0  # seconds; at the end of training, a call that takes longer counts as hanging
EXIT_PATIENCE, EXIT_WAIT = 15.0, 20.0  # seconds; the same when Python exits, and for all guards together


class SetupError(RuntimeError):
    """A tracker cannot be used and trying again will not help: the key or the server is missing."""


class Guard:
    """A queue and a thread between a run and a service.

    A call that fails is reported and made again, after growing delays. When all attempts have failed, or when
    the queue is full, the guard switches itself off and drops all later calls: what the service has received
    is then the beginning of the run, without gaps.

    Args:
        name: The name of the tracker, for messages.
        delays: Seconds to wait before each new attempt at a call.
        size: How many calls may wait.
    """

    def __init__(self, name: str, delays: Sequence[float] = RETRY_DELAYS, size: int = QUEUE_SIZE) -> None:
        self.name, self.delays, self.size = name, delays, size
        self.is_off = False
        self.error: BaseException | None = None  # the reason for switching off
        self.sync_command = f"footplate sync DIR --to {name}"
        self.at_exit: Callable[[], None] | None = None  # submits the last calls before Python exits
        self.on_off: Callable[[], None] | None = None  # called when the guard has switched itself off
        self.exit_wait: float | None = None  # seconds that one call may take when Python exits
        self._calls: deque[Call] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._process = 0  # the process that started the thread
        self._begun = self._call_begun = 0.0
        self._is_busy = self._is_failing = self._has_warned = self._is_retired = False
        self._hurry = threading.Event()  # set when Python is about to exit: no more delays between attempts

    def __reduce__(self) -> tuple[Any, ...]:
        return Guard, (self.name, self.delays, self.size)

    @property
    def is_own(self) -> bool:
        """Whether this process may use the guard; a forked process has a copy of it, but not its thread."""
        return not self._process or self._process == os.getpid()

    def submit(self, call: Callable[..., Any], *args: Any) -> None:
        """Queue `call(*args)` for the guard's thread; never blocks, never raises."""
        if self.is_off or not self.is_own:
            return
        if len(self._calls) >= self.size:
            self._switch_off(f"{self.size} events wait for it", None)
            return
        try:
            with self._changed:
                self._calls.append((call, args))
                self._is_retired = False
                self._changed.notify_all()
                if self._thread is None:
                    self._start()
        except RuntimeError as error:  # the system refuses another thread, or Python is about to exit
            self._switch_off(f"{error}", error)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all calls are done; False if some are not.

        Args:
            timeout: Seconds to wait. None waits a small share of the time since the guard started, and not at
                all for a call that has failed before or seems to hang.
        """
        if timeout is not None:
            return self._wait(timeout, patience=timeout)
        if self._is_failing:
            return False
        lived = time.monotonic() - self._begun if self._begun else 0.0
        return self._wait(max(LEAST_WAIT, WAIT_SHARE * lived), TRAIN_PATIENCE)

    def settle(self, seconds: float) -> bool:
        """Wait until all calls are done; False if one fails before, or if the seconds are over."""
        return self._wait(seconds, patience=seconds, waits_for_retries=False)

    def retire(self) -> None:
        """End the thread when all calls are done; a later call starts another."""
        if self._thread is not None and self.is_own:  # in a fork, the lock may be held by nobody
            with self._changed:
                self._is_retired = True
                self._changed.notify_all()

    def revive(self) -> None:
        """Switch the guard on again, unless its thread still hangs in a call."""
        if not self.is_off or self._is_busy:
            return
        if self._thread is not None:
            self._thread.join(1.0)
        if self._thread is None or not self._thread.is_alive():
            self._thread, self.is_off, self.error, self._has_warned = None, False, None, False

    def start_exit(self) -> None:
        """Queue the last calls, and stop delaying attempts."""
        if self.at_exit is not None:
            self.at_exit()
        self._hurry.set()

    def finish_exit(self, deadline: float) -> None:
        """Wait while the service makes progress, until the deadline; then warn that the rest is not sent."""
        seconds = deadline - time.monotonic() if self.exit_wait is None else self.exit_wait
        patience = EXIT_PATIENCE if self.exit_wait is None else self.exit_wait
        if not self._wait(seconds, patience) and not self.is_off:
            self.is_off = True
            self._say(
                logging.WARNING,
                f"{self.name} did not take all of the run in time. To send it the rest: {self.sync_command}",
            )

    # ---- helpers ----

    def _start(self) -> None:
        thread = threading.Thread(target=self._serve, name=f"footplate-{self.name}", daemon=True)
        thread.start()
        self._thread, self._process = thread, os.getpid()
        self._begun = self._begun or time.monotonic()
        _finish_at_exit(self)

    def _serve(self) -> None:
        """Make the calls one after the other; runs on the guard's thread."""
        while True:
            with self._changed:
                self._is_busy = self._is_failing = False
                self._changed.notify_all()
                while not (self._calls or self.is_off or self._is_retired):
                    self._changed.wait()
                if self.is_off or not self._calls:
                    self._thread = self._thread if self.is_off else None
                    _forget(self)
                    return
                call, args = self._calls.popleft()
                self._is_busy, self._is_failing, self._call_begun = True, False, time.monotonic()
            self._attempt(call, args)
            call, args = None, ()  # type: ignore[assignment]  # while idle, keep no model in memory

    def _attempt(self, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Make one call, with further attempts if it fails."""
        for delay in (*self.delays, None):
            try:
                call(*args)
                return
            except BaseException as error:  # a client that calls sys.exit() must not end the thread
                if delay is None or isinstance(error, (ImportError, SetupError)):
                    self._switch_off(f"{_name_of(call)} failed: {_first_line(error)}", error)
                    return
                self._is_failing = True
                self._warn_once(call, error, delay)
            self._hurry.wait(delay)
            if self.is_off:
                return

    def _warn_once(self, call: Callable[..., Any], error: BaseException, delay: float) -> None:
        level = logging.DEBUG if self._has_warned else logging.WARNING
        self._has_warned = True
        self._say(
            level,
            f"{self.name}: {_name_of(call)} failed: {_first_line(error)} Training goes on; "
            f"the next of {len(self.delays)} further attempts is in {delay:g} s.",
        )

    def _switch_off(self, reason: str, error: BaseException | None) -> None:
        self.is_off, self.error = True, error or RuntimeError(f"{self.name}: {reason}")
        self._calls.clear()
        self._say(
            logging.WARNING,
            f"{self.name} is switched off, training goes on without it: {reason.rstrip('.')}. "
            f"To send it the rest later: {self.sync_command}",
        )
        if self.on_off is not None:
            with contextlib.suppress(Exception):
                self.on_off()
        with self._changed:
            self._changed.notify_all()

    def _say(self, level: int, message: str) -> None:
        with contextlib.suppress(Exception):  # a logging handler of the user may fail
            logger.log(level, message, extra={"tracker": self.name, "is_off": self.is_off})

    def _wait(self, seconds: float, patience: float, waits_for_retries: bool = True) -> bool:
        """Wait until all calls are done; False if the time is over or the current call hangs."""
        if not self.is_own:
            return False
        if threading.current_thread() is self._thread:  # it would wait for itself
            return True
        deadline = time.monotonic() + seconds
        with self._changed:
            while not self.is_off and (self._calls or self._is_busy):
                left = deadline - time.monotonic()
                if left <= 0 or self._hangs(patience) or (self._is_failing and not waits_for_retries):
                    return False
                self._changed.wait(min(left, 0.1))
        return not self.is_off

    def _hangs(self, patience: float) -> bool:
        return self._is_busy and time.monotonic() - self._call_begun > patience


# ---- when Python exits ----

_guards: list[Guard] = []
_is_registered = False


def _finish_at_exit(guard: Guard) -> None:
    """Let the guard finish its calls before Python exits."""
    global _is_registered
    if not _is_registered:
        _call_at_exit(_finish_all)
        _is_registered = True
    if guard not in _guards:
        _guards.append(guard)


def _forget(guard: Guard) -> None:
    with contextlib.suppress(ValueError):  # it is not there in a forked process
        _guards.remove(guard)


def _finish_all() -> None:
    guards = [guard for guard in _guards if guard.is_own]
    deadline = time.monotonic() + EXIT_WAIT
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends the waiting
        for guard in guards:
            guard.start_exit()
        for guard in guards:
            guard.finish_exit(deadline)


def _call_at_exit(call: Callable[[], None]) -> None:
    """Call this when Python exits, if possible while threads can still start: many clients need that."""
    import concurrent.futures.thread  # noqa: F401  # its hook must be registered first: the last one runs first, and clients use this module

    early = getattr(threading, "_register_atexit", atexit.register)
    early(call)


def _name_of(call: Callable[..., Any]) -> str:
    return getattr(call, "__name__", "a call").strip("_").replace("_", " ")


def _first_line(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else f"{type(error).__name__}."
