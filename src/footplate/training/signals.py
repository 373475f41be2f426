"""Being told to end: a signal sets a flag that the loop looks at, so that a checkpoint is sealed first."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

logger = logging.getLogger(__name__)

STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGUSR1", "SIGINT") if hasattr(signal, name)
)


class StopRequested(Exception):
    """Raised inside a run that a signal asked to end, on its way to the checkpoint that is sealed first."""


class StopSignals:
    """While the block runs, SIGTERM, SIGUSR1 and the first SIGINT only set `received`.

    A second SIGINT stops at once. A handler that was there before is called when the block ends, after the
    checkpoint: many of them end the process, and would have taken the run with them. A signal that was
    ignored, or that C code handles, is left as it is. Outside the main thread, where Python allows no
    handlers, this does nothing.

        with StopSignals() as stop:
            ...
            if stop.received:
                ...  # seal a checkpoint, then
                stop.leave()
    """

    __slots__ = ("_earlier", "_num_interrupts", "_pending", "_process", "received")

    def __init__(self) -> None:
        self.received = 0  # the first signal's number; a plain attribute, for it is read at every micro-batch
        self._num_interrupts = 0
        self._pending: list[int] = []
        self._process = os.getpid()
        self._earlier: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
                earlier = signal.getsignal(number)
                if earlier is not None and earlier is not signal.SIG_IGN:
                    # noted first: a signal may come between the two lines
                    self._earlier[number] = earlier
                    signal.signal(number, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        earlier, self._earlier = self._earlier, {}
        for number, handler in earlier.items():
            signal.signal(number, handler)
        pending, self._pending = self._pending, []
        for number in pending:
            if is_own_handler(earlier[number]):
                earlier[number](number, None)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            self._take_in_child(number)
            return
        if number == signal.SIGINT:
            self._num_interrupts += 1
            if self._num_interrupts > 1:
                raise KeyboardInterrupt
        self.received = self.received or number
        if number not in self._pending:
            self._pending.append(number)

    def _take_in_child(self, number: int) -> None:
        """In a forked process: end when told to, but leave Ctrl-C and warnings to the parent.

        A terminal sends Ctrl-C to workers too, and the parent still needs their batches for its last update.
        """
        if number == signal.SIGTERM:
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
        """End the process with `exit_code`; in a notebook or at a prompt, say so and return."""
        logger.warning("Training was stopped by %s. Resume it with resume_from_checkpoint=True.", self.name)
        if not is_interactive():
            raise SystemExit(self.exit_code)


def is_own_handler(handler: Any) -> bool:
    """Whether a handler is somebody's function and not what Python does by default."""
    is_default: Callable[..., Any] = signal.default_int_handler
    return callable(handler) and handler is not is_default


def is_interactive() -> bool:
    """Whether somebody is at a notebook or a prompt, which an exit would close; IPython is not imported."""
    ipython = sys.modules.get("IPython")
    return hasattr(sys, "ps1") or (ipython is not None and ipython.get_ipython() is not None)
