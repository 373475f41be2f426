"""What footplate says on the process's own streams: its log where nobody else shows it, and printed lines."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import textwrap
import threading
from time import monotonic
from typing import TextIO

logger = logging.getLogger(__name__)

COLORS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m", logging.CRITICAL: "\x1b[31m"}
PLAIN = "\x1b[0m"
FLUSH_SECONDS = 0.05  # a flush wakes whoever reads a pipe, which costs ten times what a line costs

_failed_streams: set[str] = set()  # streams that could not be written, which is said once


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person looks at this stream."""
    try:
        return stream is not None and stream.isatty()
    except (OSError, ValueError):  # the stream is closed
        return False


class _Flushes:
    """Flushes a stream; if it was flushed a moment ago, then a moment later, with all that came meanwhile."""

    def __init__(self) -> None:
        self._last = float("-inf")
        self._waiting: threading.Timer | None = None
        self._stream: TextIO | None = None  # that waits

    def flush_soon(self, stream: TextIO) -> None:
        """Flush now, unless that was done within `FLUSH_SECONDS`: then a thread does it after these."""
        seconds_left = self._last + FLUSH_SECONDS - monotonic()
        if seconds_left <= 0.0:
            self.flush(stream)
        elif self._waiting is None:
            self._stream, self._waiting = stream, threading.Timer(seconds_left, self._flush_late, (stream,))
            self._waiting.daemon = True
            try:
                self._waiting.start()
            except RuntimeError:  # the system starts no more threads
                self.flush(stream)

    def flush(self, stream: TextIO) -> None:
        """Flush now."""
        self._last = monotonic()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.cancel()
        stream.flush()
        if waiting is not None and waiting.is_alive():
            waiting.join(1.0)  # at once: no thread outlives the last line

    def _flush_late(self, stream: TextIO) -> None:
        self._last, self._waiting = monotonic(), None
        try:
            stream.flush()
        except (OSError, ValueError) as error:
            report_failed_stream(stream, error)

    def before_fork(self) -> None:
        """Flush what waits: the process to come would have a copy of it, and not the thread."""
        if self._waiting is not None and self._stream is not None:
            self._waiting.cancel()
            self._flush_late(self._stream)


_flushes = _Flushes()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_flushes.before_fork)


def say(text: str, stream: TextIO | None, at_once: bool = True) -> None:
    """Print whole lines above the progress bars; a stream that cannot be written is named once.

    Args:
        text: The lines.
        stream: Where to; None for nowhere.
        at_once: Let a program that reads them see them now; else within `FLUSH_SECONDS`, if the stream is
            the stdout of the process itself. Somebody who put another one in its place may look at once.
    """
    if stream is None:  # a program without a console has no streams
        return
    try:
        _write(text, stream, at_once)
    except (OSError, ValueError) as error:  # a full disk, a closed pipe, a closed file: training goes on
        report_failed_stream(stream, error)


def _write(text: str, stream: TextIO, at_once: bool) -> None:
    if not text.isascii():  # a character that the encoding does not have must not stop training
        encoding = getattr(stream, "encoding", None) or "utf-8"
        text = text.encode(encoding, "backslashreplace").decode(encoding)
    bars = sys.modules.get("tqdm")  # if it is not imported, there is no bar
    if bars is not None and getattr(bars.tqdm, "_instances", True):
        bars.tqdm.write(text, file=stream)  # takes open bars away, writes, draws them again
        at_once = True  # or the lines would come when the bars are there again
    else:
        stream.write(text + "\n")
    if stream is not sys.__stdout__:
        stream.flush()
    elif at_once:
        _flushes.flush(stream)
    else:
        _flushes.flush_soon(stream)


def report_failed_stream(stream: TextIO, error: Exception) -> None:
    """Log once that a stream cannot be written; if it is stderr, the journal and the report still say so."""
    name = str(getattr(stream, "name", stream))
    if name not in _failed_streams:
        _failed_streams.add(name)  # before the warning, which may go to the same stream
        logger.warning(
            "%s cannot be written, so lines are missing in it: %s. Training continues.", name, error
        )


# ---- the log ----


class OwnHandler(logging.Handler):
    """A handler of footplate's own: it does not count as a logging set-up of the user."""


class Voice(OwnHandler):
    """Shows footplate's log on stderr unless the user has set up logging; then the user's handlers do.

    A logger without handlers would show warnings through Python's last resort, but the run's journal listens
    to the same logger, and then Python shows nothing.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record, unless a handler of the user gets it, or a terminal shows the same already."""
        if is_shown_by_user(record.name) or (getattr(record, "is_drawn", False) and has_terminal()):
            return
        try:
            say(self.describe(record, sys.stderr), sys.stderr)
        except Exception:
            self.handleError(record)

    def describe(self, record: logging.LogRecord, stream: TextIO | None) -> str:
        """The record as it is printed: named; on a terminal in colour, and no wider than that."""
        name = f" {record.levelname.lower()}:" if record.levelno >= logging.WARNING else ""
        text = f"footplate:{name} {self.format(record)}"
        if not is_terminal(stream):
            return text
        text = _wrap(text, shutil.get_terminal_size((100, 24)).columns)
        color = "" if "NO_COLOR" in os.environ else COLORS.get(record.levelno, "")
        return text.replace(name, f"{color}{name}{PLAIN}", 1) if color else text


def _wrap(text: str, width: int) -> str:
    """The lines of `text` broken between words; a path or a command is never broken."""
    return "\n".join(
        textwrap.fill(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for line in text.split("\n")
    )


def show_block(logger: logging.Logger, text: str, is_drawn: bool) -> None:
    """Log lines at the level of "info", for a person who asked for more.

    Args:
        logger: Where to.
        text: The lines.
        is_drawn: Whether the same is shown on a terminal, if there is one, at any level.
    """
    logger.info("The run:\n%s", text, extra={"is_drawn": is_drawn})


def is_quiet() -> bool:
    """Whether only errors are to be shown."""
    return logging.getLogger("footplate").getEffectiveLevel() >= logging.ERROR


def has_terminal() -> bool:
    """Whether a person looks at one of the streams."""
    return is_terminal(sys.stderr) or is_terminal(sys.stdout)


def install_voice() -> None:
    """Let footplate's log be seen from now on; a second call changes nothing."""
    root = logging.getLogger("footplate")
    if not any(isinstance(handler, Voice) for handler in root.handlers):
        root.addHandler(Voice())


def is_shown_by_user(name: str) -> bool:
    """Whether a handler that is not footplate's own gets the records of this logger."""
    current: logging.Logger | None = logging.getLogger(name)
    while current is not None:
        if any(not isinstance(handler, OwnHandler) for handler in current.handlers):
            return True
        current = current.parent if current.propagate else None
    return False
