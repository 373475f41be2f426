"""Measure how much time each part of a run takes."""

from __future__ import annotations

from time import perf_counter

PARTS = ("data", "forward", "backward", "optimizer", "evaluation", "saving", "callbacks")


class Stopwatch:
    """Seconds for each part of the loop; each lap adds the time since the previous lap to one part.

    This is time of the host. It does not wait for a GPU at each part, only where it reads a value back: in a
    log, an evaluation or a save. The time that the GPU still needs is counted there.
    """

    __slots__ = ("_last", "_seconds")

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._last = perf_counter()

    def lap(self, part: str) -> None:
        """Add the time since the last lap to `part`."""
        now = perf_counter()
        self._seconds[part] += now - self._last
        self._last = now

    def so_far(self) -> dict[str, float]:
        """The seconds of each part since they were drained last."""
        return dict(self._seconds)

    def drain(self) -> dict[str, float]:
        """The seconds of each part since the last call."""
        drained = {part: round(seconds, 6) for part, seconds in self._seconds.items() if seconds}
        self._seconds = dict.fromkeys(PARTS, 0.0)
        return drained
