"""Save and stop by the clock."""

from __future__ import annotations

import time


class Clock:
    """Tells when the next save is due and when the allowed time is over, for one `train()` call.

    The allowed time counts from the start of the call, not of the whole run: it is the time limit of a job,
    and each job that resumes the run has its own limit. `time.monotonic` does not change with the date.

    Args:
        max_time: Seconds that the call may take; None for no limit.
        save_every: Seconds from one save to the next; None to save never by the clock.
    """

    __slots__ = ("_last_save", "_start", "max_time", "save_every")

    def __init__(self, max_time: float | None = None, save_every: float | None = None) -> None:
        self.max_time = max_time
        self.save_every = save_every
        self._start = self._last_save = time.monotonic()

    def should_save(self) -> bool:
        """Whether `save_every` seconds have passed since the last save, or since the start."""
        return self.save_every is not None and time.monotonic() - self._last_save >= self.save_every

    def should_stop(self) -> bool:
        """Whether the allowed time is over."""
        return self.max_time is not None and time.monotonic() - self._start >= self.max_time

    def note_save(self) -> None:
        """Count the time to the next save from now, whatever the reason for this save was."""
        self._last_save = time.monotonic()
