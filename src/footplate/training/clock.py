"""Saving and stopping by the clock."""

from __future__ import annotations

import time


class Clock:
    """Tells when the next save and the end of the time allowed have come, for one `train()` call.

    The time allowed is that of the call and not of the whole run: it stands for the limit of a job, and each
    job that resumes has its own. All times are of `time.monotonic`, which nobody sets back.

    Args:
        max_time: Seconds the call may take; None for no limit.
        save_every: Seconds after a save until the next is due; None for never.
    """

    __slots__ = ("_last_save", "_start", "is_idle", "max_time", "save_every")

    def __init__(self, max_time: float | None = None, save_every: float | None = None) -> None:
        self.max_time = max_time
        self.save_every = save_every
        self.is_idle = max_time is None and save_every is None  # then nobody has to ask for the time
        self._start = self._last_save = time.monotonic()

    def elapsed_seconds(self, now: float | None = None) -> float:
        """Seconds since the call began."""
        return (time.monotonic() if now is None else now) - self._start

    def should_save(self, now: float | None = None) -> bool:
        """Whether the last save, or the start, is as long ago as a save may be."""
        if self.save_every is None:
            return False
        return (time.monotonic() if now is None else now) - self._last_save >= self.save_every

    def should_stop(self, now: float | None = None) -> bool:
        """Whether the time allowed is used up."""
        return self.max_time is not None and self.elapsed_seconds(now) >= self.max_time

    def note_save(self, now: float | None = None) -> None:
        """Count from here to the next save, for whatever reason this one was made."""
        self._last_save = time.monotonic() if now is None else now
