"""When one process fails, the others stop within seconds and name it."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from types import TracebackType

import torch

from footplate.comm import rank, world_size
from footplate.distributed.board import Board, ask_within, is_store_here, is_store_in_first_rank, open_board
from footplate.distributed.endings import limit_exit, record_for_torchrun, remove_record
from footplate.distributed.naming import join_names

logger = logging.getLogger(__name__)

MAX_TRACEBACK = 20_000  # characters; of a longer one the end is kept
ANSWER_SECONDS = 2.0  # how long to wait for a store, and for another rank to say what happened
FINISHED, STOPPED = "finished", "stopped"  # in place of a beat: without an error, because of one
# parts of the messages of collectives that failed because of another process
COLLECTIVE_MARKS = ("gloo", "nccl", "connection closed by peer", "connection reset by peer", "broken pipe")

_numbers = itertools.count()  # each watch has keys of its own: an error that was caught belongs to the past


@dataclass(frozen=True)
class Failure:
    """What the rank that failed first said about itself."""

    rank: int
    host: str
    process: int
    error: str  # in one line
    traceback: str


class RankFailed(RuntimeError):
    """Another rank failed, so this one stops; `failure` is what that rank said, None if it was killed."""

    def __init__(self, message: str, failure: Failure | None = None) -> None:
        super().__init__(message)
        self.failure = failure


class FailureWatch:
    """While the block runs, an error on one rank stops all of them.

    An error that leaves the block is announced to the other ranks. If a collective failed because another
    rank did, `RankFailed` leaves the block in its place. A thread looks for announcements, because peers of a
    failed rank wait for it as long as its process lives (gloo) or longer (NCCL): a rank that has not noticed
    after `grace` seconds is ended. With one process, nothing of this happens.

    Args:
        grace: Seconds between the announcement of another rank and the forced end of this process.
        interval: Seconds between two looks at the store.
    """

    def __init__(self, grace: float = 5.0, interval: float = 0.5) -> None:
        self.grace = grace
        self.interval = interval
        self._rank = rank()
        self._num_ranks = world_size()
        self._failure: Failure | None = None  # of another rank; written by the thread
        self._is_told = False  # this rank knows that the run has failed: nobody has to end it by force
        self._was_announced = False  # by this rank
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        name = f"failures/{next(_numbers)}"  # counted by every process, also where there is no board
        self._board = open_board(name) if self._num_ranks > 1 else None

    def __enter__(self) -> FailureWatch:
        if self._board is not None:
            remove_record()
            self._thread = threading.Thread(
                target=self._watch, args=(self._board,), name="footplate-failures", daemon=True
            )
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            told = self.report(error) if error is not None else None
        finally:
            self._stop.set()
            if self._thread is not None:
                self._thread.join(timeout=1.0)  # it may wait for a store that does not answer
        if told is not None:
            raise told from None  # what the collective said would hide what happened

    def report(self, error: BaseException) -> RankFailed | None:
        """Announce an error of this rank; if another rank caused it, return what to raise in its place."""
        if isinstance(error, RankFailed):  # announced by the rank that failed
            return None
        told = self.explain(error) if is_collective_error(error) else None
        if told is None:
            self.announce(error)
        return told

    def announce(self, error: BaseException) -> None:
        """Tell the other ranks and torchrun that this rank failed; the first rank to announce wins."""
        board, was_announced = self._board, self._was_announced
        self._is_told = self._was_announced = True
        if board is None or was_announced:  # torchrun shows the record with the earliest time as the cause
            return
        failure = describe_failure(error, self._rank)
        text = json.dumps(asdict(failure))
        ask_within(ANSWER_SECONDS, lambda: board.write_first("failure", text), None)
        record_for_torchrun(failure.error, failure.traceback)
        limit_exit()
        if is_store_here():  # the announcement ends with this process: let the others read it first
            ask_within(ANSWER_SECONDS, lambda: self._wait_until_read(board), None)

    def find_failure(self) -> Failure | None:
        """What another rank announced; None if none did, or the store does not answer."""
        board = self._board
        if self._failure is None and board is not None:
            return ask_within(ANSWER_SECONDS, lambda: self._read_failure(board), None)
        return self._failure

    def explain(self, error: BaseException) -> RankFailed | None:
        """Why a collective failed, if another rank is the reason; takes up to a few seconds to find out."""
        self._is_told = True
        board = self._board
        if board is None:
            return None
        before = ask_within(ANSWER_SECONDS, lambda: self._read_beats(board), None)
        # torch prints a page of its own for each question to a store that is gone
        failure = self._failure if before is None else self._wait_for_failure()
        if failure is not None:
            told = RankFailed(self._describe(failure), failure)
        else:
            reason = self._find_silent(board, before)
            if reason is None:
                return None
            told = RankFailed(f"{reason} The collective in which rank {self._rank} waited: {_shorten(error)}")
        self._record(told)
        return told

    # ---- what the others said ----

    def _wait_for_failure(self) -> Failure | None:
        """The announcement of another rank, which may need a moment to arrive."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < deadline:
            failure = self.find_failure()
            if failure is not None:
                return failure
            time.sleep(0.1)
        return None

    def _read_failure(self, board: Board) -> Failure | None:
        text = board.read("failure")
        failure = None if text is None else Failure(**json.loads(text))
        return None if failure is None or failure.rank == self._rank else failure

    def _read_beats(self, board: Board) -> list[str | None]:
        return [board.read(f"beat/{number}") for number in range(self._num_ranks)]

    def _find_silent(self, board: Board, before: list[str | None] | None) -> str | None:
        """A sentence that names the ranks that ended without an announcement; None if all are alive."""
        after = None if before is None else ask_within(ANSWER_SECONDS, lambda: self._read_beats(board), None)
        if before is None or after is None:
            return describe_lost_store()
        own = self._rank
        silent = {n: beat for n, beat in enumerate(after) if beat and beat == before[n] and n != own}
        finished = [number for number, beat in silent.items() if beat == FINISHED]
        killed = [number for number, beat in silent.items() if beat not in (FINISHED, STOPPED)]
        if killed:
            return describe_killed([_name_rank(number, silent[number]) for number in killed])
        if finished:
            names = [f"Rank {number}" for number in finished]
            return f"{join_names(names)} finished training before the others."
        return None

    def _wait_until_read(self, board: Board) -> None:
        deadline = time.monotonic() + ANSWER_SECONDS
        while board.add("read", 0) < self._num_ranks - 1 and time.monotonic() < deadline:
            time.sleep(0.05)

    # ---- the thread ----

    def _watch(self, board: Board) -> None:
        """Say that this process lives, and look for an announcement, until the block ends."""
        noticed_at = 0.0
        with contextlib.suppress(Exception):  # the store is gone: then collectives fail as well
            for count in itertools.count():
                board.write(f"beat/{self._rank}", f"{count} {socket.gethostname()} {os.getpid()}")
                if self._failure is None:
                    self._failure = self._read_failure(board)
                    if self._failure is not None:
                        noticed_at = time.monotonic()
                        board.add("read", 1)
                elif time.monotonic() - noticed_at > self.grace and not self._is_told:
                    self._end_process(self._failure)
                if self._stop.wait(self.interval):
                    break
            board.write(f"beat/{self._rank}", STOPPED if self._is_told else FINISHED)

    def _end_process(self, failure: Failure) -> None:
        """End a process that may never come back from its collective."""
        told = RankFailed(self._describe(failure), failure)
        self._record(told)
        where = f"Rank {self._rank} did not come back from its current call within {self.grace:g} s."
        # another thread may hold the lock of a stream
        ask_within(ANSWER_SECONDS, lambda: logger.critical("%s Its process ends now: %s", where, told), None)
        ask_within(ANSWER_SECONDS, lambda: (sys.stdout.flush(), sys.stderr.flush()), (None, None))
        os._exit(1)

    def _describe(self, failure: Failure) -> str:
        name = f"Rank {failure.rank} ({failure.host}, process {failure.process})"
        text = f"{name} failed, so rank {self._rank} stops too: {failure.error}"
        if "TORCHELASTIC_ERROR_FILE" in os.environ and failure.host == socket.gethostname():
            return f"{text}\nThe traceback of rank {failure.rank} is in the summary at the end."
        return f"{text}\nThe traceback of rank {failure.rank}:\n{failure.traceback}"

    def _record(self, told: RankFailed) -> None:
        # torchrun counts in whole seconds and shows the earliest as the cause
        record_for_torchrun(f"RankFailed: {told}", str(told), delay=1)
        limit_exit()


def is_collective_error(error: BaseException) -> bool:
    """Whether an error, or one that led to it, is that of a collective or a store."""
    kinds = getattr(torch.distributed, "DistError", ())  # torch can be built without it
    seen: BaseException | None = error
    while seen is not None:
        text = str(seen).lower()
        if isinstance(seen, kinds) or (
            isinstance(seen, (RuntimeError, OSError)) and any(mark in text for mark in COLLECTIVE_MARKS)
        ):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def describe_failure(error: BaseException, number: int) -> Failure:
    """What the other ranks are told about an error on rank `number`."""
    lines = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    short = _shorten("".join(traceback.format_exception_only(type(error), error)).strip())
    return Failure(number, socket.gethostname(), os.getpid(), short, lines[-MAX_TRACEBACK:])


def describe_killed(names: Sequence[str]) -> str:
    """A sentence about ranks that ended without an error."""
    verb, them = ("no longer answers", "it was") if len(names) == 1 else ("no longer answer", "they were")
    return (
        f"{join_names(names)} {verb} and left no error: {them} probably killed, for example for lack of "
        "memory (the system log of the host says so), or the host is gone."
    )


def describe_lost_store() -> str:
    """A sentence about a store that does not answer, and who held it."""
    holder = "rank 0" if is_store_in_first_rank() else "the launcher on the first host"
    return f"The store of this run no longer answers: {holder}, which holds it, was probably killed."


def _name_rank(number: int, beat: str) -> str:
    _, host, process = beat.split(" ")
    return f"Rank {number} ({host}, process {process})"


def _shorten(text: object, limit: int = 500) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= limit else f"{line[:limit]}…"
