"""Stop on a signal: it sets a flag that the loop reads, so that a checkpoint is sealed before the end."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from torch.utils.data import get_worker_info

logger = logging.getLogger(__name__)

STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGUSR1", "SIGINT") if hasattr(signal, name)
)


class StopRequested(Exception):
    """Leaves the loop when a signal or the time limit ends the run; a checkpoint is sealed next."""


class StopSignals:
    """While the block runs, SIGTERM, SIGUSR1 and the first SIGINT only set `received`.

    A second SIGINT stops at once. A handler of someone else is called when the block ends, after the
    checkpoint: many such handlers end the process, and would do so before the checkpoint is sealed. That is
    so for handlers that were set before, and for those that a client sets inside the block: `keep` takes the
    signals back. A signal that is ignored, or that C code handles, is left as it is. Outside the main thread,
    where Python allows no handlers, this does nothing.

        with StopSignals() as stop:
            ...
            stop.keep()
            if stop.received:
                ...  # seal a checkpoint, then
                stop.leave()
    """

    __slots__ = (
        *("_first", "_handler", "_is_over", "_num_interrupts", "_num_terminations", "_others", "_pending"),
        *("_process", "received"),
    )

    def __init__(self) -> None:
        self.received = 0  # number of the first signal; a plain attribute: every micro-batch reads it
        self._num_interrupts = 0
        self._num_terminations = 0  # of a worker
        self._pending: list[int] = []
        self._process = os.getpid()
        self._handler = self._handle  # one object, so that it is known by its identity
        self._first: dict[int, Any] = {}  # the handlers before the block
        self._others: dict[int, Any] = {}  # those that are put back after it: the first, or later ones
        self._is_over = False

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
                earlier = signal.getsignal(number)
                if _can_be_replaced(earlier):
                    # stored first: a signal may arrive between the two lines
                    self._first[number] = self._others[number] = earlier
                    signal.signal(number, self._handler)
        return self

    def keep(self) -> None:
        """Take the signals back from handlers that were set inside the block; takes half a microsecond."""
        for number in self._others:
            if _get_handler(number) is not self._handler:
                self._take_back(number)

    def _take_back(self, number: int) -> None:
        handler = signal.getsignal(number)
        is_main = threading.current_thread() is threading.main_thread() and os.getpid() == self._process
        if is_main and _can_be_replaced(handler):
            self._others[number] = handler
            signal.signal(number, self._handler)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._others.items():
            if _get_handler(number) is self._handler:  # else someone has set another one since
                signal.signal(number, handler)
        pending, self._pending = self._pending, []
        try:
            for number in pending:
                if is_own_handler(self._others[number]):
                    self._others[number](number, None)
        finally:
            self._is_over, self._others = True, {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            self._handle_in_child(number)
            return
        if self._is_over:  # a client had replaced this handler, and has put it back after the block
            _pass_on(self._first.get(number), number, frame)
            return
        if number == signal.SIGINT:
            self._num_interrupts += 1
            if self._num_interrupts > 1:
                raise KeyboardInterrupt
        self.received = self.received or number
        if number not in self._pending:
            self._pending.append(number)

    def _handle_in_child(self, number: int) -> None:
        """In a forked process: end on SIGTERM, and leave SIGINT and SIGUSR1 to the parent.

        A terminal sends Ctrl-C, and a scheduler SIGTERM, to all processes of a run, but the parent still
        needs the batches of its workers for the last update. So a worker of a loader ignores the first
        SIGTERM while its parent lives. A second one ends it: so does the parent at its exit.
        """
        if number != signal.SIGTERM:
            return
        self._num_terminations += 1
        is_needed = get_worker_info() is not None and os.getppid() == self._process
        if self._num_terminations > 1 or not is_needed:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    @property
    def exit_code(self) -> int:
        """What a shell reports for a process that the signal ended: 143 for SIGTERM, 0 without a signal."""
        return 128 + self.received if self.received else 0

    @property
    def name(self) -> str:
        """The signal's name, such as "SIGTERM"; empty without one."""
        return signal.Signals(self.received).name if self.received else ""

    def leave(self) -> None:
        """After Ctrl-C raise KeyboardInterrupt; else end the process, or at a prompt say so and return."""
        logger.warning("Training was stopped by %s. Resume it with resume_from_checkpoint=True.", self.name)
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt
        if not is_interactive():
            raise SystemExit(self.exit_code)


@contextmanager
def ignore_children() -> Iterator[None]:
    """Let no death of a child process interrupt the block: torch's handler raises wherever the process is.

    A scheduler that ends a whole group of processes ends workers while their parent seals a checkpoint.
    """
    number = getattr(signal, "SIGCHLD", None)
    if number is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(number, signal.SIG_DFL if earlier is None else earlier)


# the function that `signal.getsignal` calls, and then makes an enum of the answer, which is ten times as slow
_get_handler: Callable[[int], Any] = importlib.import_module("_signal").getsignal


def _can_be_replaced(handler: Any) -> bool:
    """Whether a handler may give way during training; a signal that is ignored, or left to C code, not."""
    return handler is not None and handler is not signal.SIG_IGN


def _pass_on(handler: Any, number: int, frame: FrameType | None) -> None:
    """Do what a handler would have done, also where it is Python's default."""
    if callable(handler):
        handler(number, frame)
    elif handler == signal.SIG_DFL:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def is_own_handler(handler: Any) -> bool:
    """Whether a handler is a function that someone set, not the default of Python."""
    default: Callable[..., Any] = signal.default_int_handler
    return callable(handler) and handler is not default


def is_interactive() -> bool:
    """Whether this is a notebook or a prompt, which an exit would close; does not import IPython."""
    ipython = sys.modules.get("IPython")
    return hasattr(sys, "ps1") or (ipython is not None and ipython.get_ipython() is not None)
