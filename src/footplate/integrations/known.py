"""Trackers that can ask their service which points it has: after a kill, nothing is twice or missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from footplate.integrations.base import TrackerCallback
from footplate.integrations.run import Run

WAIT_SECONDS = 60.0  # how long the training thread waits when user code asks for the client or the run
# the totals of a run that are shown as single values
TOTALS = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "total_flos")


class KnowingTracker(TrackerCallback):
    """A tracker whose service can be asked what it has.

    A client that is killed loses what it had not written yet, so the service may have less than was sent.
    A resumed run therefore offers all its logs again, and `known` leaves out those that the service has.
    """

    def __init__(self) -> None:
        super().__init__()
        self.known = KnownPoints()
        self._num_noted = 0  # logs that were sent, by the ledger

    def resume(self, run: Run) -> None:
        """Continue `run` from its first log; `open` finds out which logs the service has."""
        super().resume(run)
        self._num_noted, run.num_sent = run.num_sent, 0

    def learn(self, run: Run, points: Iterable[tuple[str, int]] | None) -> None:
        """Remember the points that the service has; if it cannot tell (None), trust the ledger."""
        self.known = KnownPoints(points or ())
        if points is None:
            run.num_sent = self._num_noted


class KnownPoints:
    """The last step of each curve that a service has.

    Args:
        points: Curve and step of every point that is there.
    """

    def __init__(self, points: Iterable[tuple[str, int]] = ()) -> None:
        self._last_steps: dict[str, int] = {}
        for key, step in points:
            self._last_steps[key] = max(step, self._last_steps.get(key, step))

    def without(self, values: dict[str, Any], step: int) -> dict[str, Any]:
        """The values that are new at this step."""
        return {key: value for key, value in values.items() if step > self._last_steps.get(key, -1)}
