"""What all ranks decide together: when to stop, and what a callback or a signal on one of them asks for."""

from __future__ import annotations

import time
from collections.abc import Sequence

from footplate import comm

CHECK_SECONDS = 1.0  # between two exchanges, where nothing needs one at every update
MAX_TURNS = 1000


class JointDecisions:
    """Wishes of any rank become those of all, in one small exchange.

    A wish that depends on the step alone is the same on every rank and needs no exchange. Signals and clocks
    differ; they may wait a moment. So ranks exchange every few turns, as many as take about a second: the
    first rank measures it, and tells the others in the exchange itself. Each rank must call `decide` equally
    often.
    """

    def __init__(self) -> None:
        self._is_alone = comm.world_size() == 1
        self._is_first = comm.rank() == 0
        self._interval = self._left = 1
        self._since = time.monotonic()

    def waits(self) -> bool:
        """Whether it is not yet time to ask: the turn counts, and `decide` need not be called in it."""
        if self._left > 1:
            self._left -= 1
            return True
        return False

    def decide(self, wishes: Sequence[int], at_once: bool = False) -> list[int]:
        """How many ranks wish what, as of now; zeros where it is not yet time to ask.

        Args:
            wishes: Numbers of this rank, which are added up over all.
            at_once: Exchange in any case; must be the same on all ranks.
        """
        if self._is_alone:
            return list(wishes)
        self._left -= 1
        if self._left > 0 and not at_once:
            return [0] * len(wishes)
        *totals, interval = comm.sum_integers([*wishes, self._propose() if self._is_first else 0])
        self._left = self._interval = interval
        self._since = time.monotonic()
        return totals

    def _propose(self) -> int:
        """How many turns make up the time between two exchanges, judging by the last ones."""
        num_turns = self._interval - max(self._left, 0)
        elapsed = time.monotonic() - self._since
        fitting = int(CHECK_SECONDS * max(num_turns, 1) / max(elapsed, 1e-6))
        # one turn may be far shorter than those to come: the first one, or two exchanges in a row
        return max(1, min(MAX_TURNS, 2 * self._interval, fitting))
