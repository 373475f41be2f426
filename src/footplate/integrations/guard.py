"""Keeps a run safe from its trackers: each is served by a thread of its own, which may fail, hang or die."""

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
LEAST_WAIT, WAIT_SHARE = 2.0, 0.03  # at the end of training: seconds, or this share of the guard's life
TRAIN_PATIENCE = 3.0  # at the end of training, a call that takes longer is taken to hang
EXIT_PATIENCE, EXIT_WAIT = 15.0, 20.0  # the same when Python ends, and how long that may take in all


class SetupError(RuntimeError):
    """A tracker cannot be used as things are, and trying again will not help: no key, no server named."""


class Guard:
    """A queue and a thread between a run and a service.

    A call that fails is warned of and made again, at growing intervals; when it has failed for good, or when
    the queue is full, the guard switches itself off and drops all that follows, so that what the service has
    got is a beginning of the run without holes.

    Args:
        name: The tracker, for messages.
        delays: Seconds to wait before each new attempt at a call.
        size: How many calls may wait.
    """

    def __init__(self, name: str, delays: Sequence[float] = RETRY_DELAYS, size: int = QUEUE_SIZE) -> None:
        self.name, self.delays, self.size = name, delays, size
        self.is_off = False
        self.error: BaseException | None = None  # what switched it off
        self.remedy = f"footplate sync DIR --to {name}"
        self.at_exit: Callable[[], None] | None = None  # submits what is to be done before Python ends
        self._calls: deque[Call] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._process = 0  # that of the thread
        self._begun = self._call_begun = 0.0
        self._is_busy = self._is_failing = self._has_warned = False
        self._hurry = threading.Event()  # Python is about to end: no more waiting between attempts

    def __reduce__(self) -> tuple[Any, ...]:
        return Guard, (self.name, self.delays, self.size)

    @property
    def is_own(self) -> bool:
        """Whether this process may use the guard: a fork has a copy of it, but not its thread."""
        return not self._process or self._process == os.getpid()

    def submit(self, call: Callable[..., Any], *args: Any) -> None:
        """Have `call(*args)` made on the guard's thread; never blocks, never raises."""
        if self.is_off or not self.is_own:
            return
        if len(self._calls) >= self.size:
            self._switch_off(f"{self.size} events wait for it", None)
            return
        try:
            with self._changed:
                self._calls.append((call, args))
                self._changed.notify_all()
                if self._thread is None:
                    self._start()
        except RuntimeError as error:  # Python is about to end and starts no more threads
            self._switch_off(f"{error}", error)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all that was submitted is done; False where it is not.

        Args:
            timeout: Seconds to wait. Without it, a time that is small beside what the guard has lived, and
                none at all for a call that has failed before or seems to hang.
        """
        if timeout is not None:
            return self._wait(timeout, patience=timeout)
        if self._is_failing:
            return False
        lived = time.monotonic() - self._begun if self._begun else 0.0
        return self._wait(max(LEAST_WAIT, WAIT_SHARE * lived), TRAIN_PATIENCE)

    def revive(self) -> None:
        """Give a service that was switched off another chance, unless it still hangs in a call."""
        if self._thread is not None and self.is_off and not self._is_busy:
            self._thread.join(1.0)
            if not self._thread.is_alive():
                self._thread, self.is_off, self.error, self._has_warned = None, False, None, False

    def begin_to_leave(self) -> None:
        """Python ends: do what belongs to that, without long pauses."""
        if self.at_exit is not None:
            self.at_exit()
        self._hurry.set()

    def leave(self, deadline: float) -> None:
        """Wait as long as the service makes progress, then go without it."""
        if not self._wait(deadline - time.monotonic(), EXIT_PATIENCE) and not self.is_off:
            self.is_off = True
            message = f"{self.name} did not take all of the run in time. To send it the rest: {self.remedy}"
            self._say(logging.WARNING, message)

    # ---- inside ----

    def _start(self) -> None:
        self._process = os.getpid()
        self._begun = self._begun or time.monotonic()
        self._thread = threading.Thread(target=self._serve, name=f"footplate-{self.name}", daemon=True)
        self._thread.start()
        _leave_with(self)

    def _serve(self) -> None:
        """On the guard's thread: make the calls, one after the other."""
        while True:
            with self._changed:
                self._is_busy = self._is_failing = False
                self._changed.notify_all()
                while not self._calls and not self.is_off:
                    self._changed.wait()
                if self.is_off:
                    return
                call, args = self._calls.popleft()
                self._is_busy, self._is_failing, self._call_begun = True, False, time.monotonic()
            self._attempt(call, args)
            call, args = None, ()  # type: ignore[assignment]  # an idle guard holds no model

    def _attempt(self, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Make one call, again and again if it must be."""
        for delay in (*self.delays, None):
            try:
                call(*args)
                return
            except BaseException as error:  # a client that wants to exit must not take the thread along
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
            f"To send it the rest later: {self.remedy}",
        )
        with self._changed:
            self._changed.notify_all()

    def _say(self, level: int, message: str) -> None:
        with contextlib.suppress(Exception):  # a handler of the user's that fails is no reason to stop
            logger.log(level, message, extra={"tracker": self.name, "is_off": self.is_off})

    def _wait(self, seconds: float, patience: float) -> bool:
        """Wait until nothing is left to do; False where the time is up or the current call hangs."""
        if not self.is_own:
            return False
        if threading.current_thread() is self._thread:  # it asks for itself
            return True
        deadline = time.monotonic() + seconds
        with self._changed:
            while not self.is_off and (self._calls or self._is_busy):
                left = deadline - time.monotonic()
                if left <= 0 or self._hangs(patience):
                    return False
                self._changed.wait(min(left, 0.1))
        return not self.is_off

    def _hangs(self, patience: float) -> bool:
        return self._is_busy and time.monotonic() - self._call_begun > patience


# ---- when Python ends ----

_guards: list[Guard] = []


def _leave_with(guard: Guard) -> None:
    """See to it that the guard is heard once more before Python ends."""
    if not _guards:
        _register(_leave_all)
    if guard not in _guards:
        _guards.append(guard)


def _leave_all() -> None:
    guards = [guard for guard in _guards if guard.is_own]
    deadline = time.monotonic() + EXIT_WAIT
    with contextlib.suppress(KeyboardInterrupt):  # whoever presses Ctrl-C now does not want to wait
        for guard in guards:
            guard.begin_to_leave()
        for guard in guards:
            guard.leave(deadline)


def _register(call: Callable[[], None]) -> None:
    """Before threads are shut down, where Python can do that: by `atexit` time clients can start none."""
    import concurrent.futures.thread  # noqa: F401  # its own hook must be there first: the last one runs first

    early = getattr(threading, "_register_atexit", atexit.register)
    early(call)


def _name_of(call: Callable[..., Any]) -> str:
    return getattr(call, "__name__", "a call").strip("_").replace("_", " ")


def _first_line(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else f"{type(error).__name__}."
