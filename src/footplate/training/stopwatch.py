"""Where the time of a run goes, at the cost of reading a clock."""

from __future__ import annotations

from time import perf_counter

PARTS = ("data", "forward", "backward", "optimizer", "evaluation", "saving", "callbacks")


class Stopwatch:
    """Seconds by part of the loop: a lap gives the time since the one before to its part.

    On a device that works apart from the host, a part is what the host spent on it: it waits where it reads
    a value back, which is in a log, an evaluation or a save.
    """

    __slots__ = ("_last", "_seconds")

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._last = perf_counter()

    def lap(self, part: str) -> None:
        """What happened since the last lap was `part`."""
        now = perf_counter()
        self._seconds[part] += now - self._last
        self._last = now

    def drain(self) -> dict[str, float]:
        """The seconds of each part since the last time this was asked."""
        drained = {part: round(seconds, 6) for part, seconds in self._seconds.items() if seconds}
        self._seconds = dict.fromkeys(PARTS, 0.0)
        return drained
