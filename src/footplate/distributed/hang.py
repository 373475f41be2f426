"""Names the rank that stands still, with the stacks of all ranks; training is never stopped by it."""

from __future__ import annotations

import itertools
import json
import logging
import os
import socket
import threading
import time
from dataclasses import asdict, replace
from types import TracebackType

from footplate.comm import rank, world_size
from footplate.distributed.board import Board, open_board
from footplate.distributed.failures import describe_lost_store
from footplate.distributed.hang_report import Place, Stacks, collect_stacks, write_report

logger = logging.getLogger(__name__)

NUM_REPORTERS = 4  # ranks that can write the report, each only if those before it no longer answer

Beat = tuple[int, str, int]  # step, stage, beats before it in this step

_numbers = itertools.count()  # each watch has keys of its own


class HangWatch:
    """While the block runs, a report is logged whenever a rank stands still for `seconds`.

    A thread of every process notes whether its own rank moves, and tells the others where it is. If a rank
    stands still, all ranks write down their stacks, and the first one logs them. Every duration is measured
    by the rank itself, so clocks need not agree. With one process, or None as `seconds`, nothing happens.

    Args:
        seconds: How long a rank may stand still; None to switch it off. Also the time between two reports.
        interval: Seconds between two looks; a tenth of `seconds`, at most 5, if None.
    """

    def __init__(self, seconds: float | None, interval: float | None = None) -> None:
        self.seconds = seconds or 0.0
        self.interval = interval or min(5.0, max(0.05, self.seconds / 10))
        self._place = (0, "start", 0)
        self._rank = rank()
        self._num_ranks = world_size()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        name = f"hang/{next(_numbers)}"  # counted by every process, also where there is no board
        self._board = open_board(name) if seconds and self._num_ranks > 1 else None

    def beat(self, step: int, stage: str) -> None:
        """Note that this rank moves, and where it is; takes a fraction of a microsecond."""
        last = self._place
        # a new tuple each time: the thread sees a beat by its identity
        self._place = (step, stage, last[2] + 1 if last[0] == step else 0)

    def __enter__(self) -> HangWatch:
        if self._board is not None:
            self._thread = threading.Thread(target=self._watch, args=(self._board,), name="footplate-hang")
            self._thread.daemon = True
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=1.0)  # it may wait for a store that does not answer

    # ---- the thread ----

    def _watch(self, board: Board) -> None:
        """Look at every interval, until the block ends or the store is gone."""
        watched = Watched(board, self._rank, self._num_ranks, self.seconds, self.interval)
        try:
            while not self._stop.wait(self.interval):
                watched.look(self._place)
            watched.tell(self._place, is_over=True)
        except Exception as error:  # nothing here may reach training
            logger.debug("The watch for standing ranks has no store any more: %s", error)
            while not self._stop.wait(self.interval) and not watched.report_alone(self._place):
                pass


class Watched:
    """What the thread of one rank knows: where its rank is and since when, and what was asked of it."""

    def __init__(self, board: Board, number: int, num_ranks: int, seconds: float, interval: float) -> None:
        self.board = board
        self.number = number
        self.num_ranks = num_ranks
        self.seconds = seconds
        self.interval = interval
        self._last: Beat | None = None
        self._moved_at = time.monotonic()
        self._asked_at = float("-inf")
        self._num_asked = 0
        self._before: dict[int, Place] = {}  # where all ranks were when somebody asked
        self._report_at = float("inf")
        self._count = itertools.count()

    def look(self, beat: Beat) -> None:
        """Tell where this rank is; ask for stacks if it stands still, give them if somebody asked."""
        place = self.tell(beat)
        now = time.monotonic()
        is_due = now - self._asked_at >= self.seconds
        num_asked = self.board.add("asked", 0)
        if num_asked == self._num_asked and is_due and place.stood >= self.seconds:
            num_asked = self.board.add("asked", 1)
        if num_asked != self._num_asked:
            self._num_asked = num_asked
            self.board.write(f"stacks/{self.number}", json.dumps(asdict(collect_stacks())))
            is_reporting = self._report_at != float("inf")
            if is_due and not is_reporting and self.number < NUM_REPORTERS:
                self._before = self._read_places()
                # every living rank tells its place at least twice until then
                self._report_at = now + 2.5 * self.interval + 0.5
            self._asked_at = now if is_due else self._asked_at
        if now >= self._report_at:
            self._report_at = float("inf")
            self._report()

    def tell(self, beat: Beat, is_over: bool = False) -> Place:
        """Find out where this rank is, and tell the others."""
        place = self._find_place(beat, is_over)
        self.board.write(f"place/{self.number}", json.dumps(asdict(place)))
        return place

    def report_alone(self, beat: Beat) -> bool:
        """Without a store, log that this rank stands still, if it does; returns whether it was logged."""
        place = self._find_place(beat)
        if place.stood < self.seconds:
            return False
        text = write_report({self.number: place}, {self.number: collect_stacks()})
        logger.error("%s %s", describe_lost_store(), text)
        return True

    def _find_place(self, beat: Beat, is_over: bool = False) -> Place:
        now = time.monotonic()
        if beat is not self._last:
            self._last, self._moved_at = beat, now
        stood = now - self._moved_at
        step, stage, turn = beat
        return Place(step, stage, turn, stood, socket.gethostname(), os.getpid(), next(self._count), is_over)

    def _report(self) -> None:
        """Log where all ranks are, unless a rank before this one does so."""
        places = self._read_places()
        for number, place in places.items():
            earlier = self._before.get(number)
            is_silent = earlier is not None and earlier.count == place.count and not place.is_over
            places[number] = replace(place, is_gone=is_silent)
        if any(not place.is_gone and not place.is_over for n, place in places.items() if n < self.number):
            return
        if any(place.stood >= self.seconds for place in places.values()):
            logger.error("%s", write_report(places, self._read_stacks()))

    def _read_stacks(self) -> dict[int, Stacks]:
        texts = {number: self.board.read(f"stacks/{number}") for number in range(self.num_ranks)}
        return {number: Stacks(**json.loads(text)) for number, text in texts.items() if text is not None}

    def _read_places(self) -> dict[int, Place]:
        texts = {number: self.board.read(f"place/{number}") for number in range(self.num_ranks)}
        return {number: Place(**json.loads(text)) for number, text in texts.items() if text is not None}
