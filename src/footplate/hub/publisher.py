"""Sends a run to the Hub from a thread of its own: a slow or dead Hub neither stops nor slows training."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from footplate.hub.client import PushError, Repository
from footplate.hub.contents import (
    drop_leftovers,
    drop_snapshot,
    find_model_files,
    find_resume_files,
    find_run_files,
    hold_files,
    names_of,
    take_snapshot,
)
from footplate.hub.ledger import HubLedger, load_ledger
from footplate.integrations.guard import Guard
from footplate.integrations.isolation import call_weakly, undisturbed

OPEN_WAIT = 5.0  # seconds; how long the Trainer waits for the Hub to make the repository
EXIT_WAIT = 600.0  # seconds; an upload that is under way when Python ends may take so long
MODEL_FOLDER = "model"  # of the links to what is sent of the run's own folder
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0  # seconds without attempts, after all attempts have failed

logger = logging.getLogger(__name__)


@dataclass
class Parcel:
    """What is sent in one commit.

    Args:
        names: What it is, in the words of messages.
        message: Of the commit.
        files: By their path in the repository.
        snapshot: Links to the files, removed afterwards.
    """

    names: list[str]
    message: str
    files: dict[str, Path]
    revision: str | None = None
    token: str | None = field(default=None, repr=False)
    snapshot: Path | None = None
    future: Future[Any] = field(default_factory=Future)


class PushInProgress:
    """The pushes that are under way, as the API shows them.

    Args:
        jobs: Their futures.
    """

    def __init__(self, jobs: list[Future[Any]] | None = None) -> None:
        self.jobs = [] if jobs is None else jobs

    def is_done(self) -> bool:
        """Whether all of them have ended, well or not."""
        return all(job.done() for job in self.jobs)

    def wait_until_done(self) -> None:
        """Wait until all of them have ended."""
        for job in self.jobs:
            job.exception()


class Publisher:
    """Where the pushes of one Trainer go through, one after the other.

    Args:
        folder: The run's folder.
        repository: Where to.
        strategy: `hub_strategy`, for the ledger.
    """

    def __init__(self, folder: Path, repository: Repository, strategy: str) -> None:
        self.folder, self.repository = folder, repository
        self.in_progress: PushInProgress | None = None
        self.ledger = load_ledger(folder) or HubLedger(repository.name)
        self.ledger.repository, self.ledger.strategy = repository.name, strategy
        self.ledger.revision, self.ledger.private = repository.revision, repository.private
        self.postponed: dict[str, Path] = {}  # checkpoints whose turn a push under way has taken
        self._guard = Guard("hub")
        self._guard.sync_command = f"footplate push {folder}"
        self._guard.on_off, self._guard.exit_wait = call_weakly(self._give_up), EXIT_WAIT
        self._parcels: list[Parcel] = []  # queued or under way
        self._lock = threading.Lock()
        self._pause, self._quiet_until = FIRST_PAUSE, 0.0
        self._has_swept = False
        self.is_collecting = False  # while the model is saved for a push: that save is not pushed itself
        weakref.finalize(self, self._guard.retire)

    def open(self) -> None:
        """Make the repository on the thread, and wait a few seconds for it: a wrong token shows at once."""
        with undisturbed():
            self._guard.submit(self._create)
            self._guard.settle(OPEN_WAIT)

    @property
    def is_busy(self) -> bool:
        """Whether a push is queued or under way."""
        return self.in_progress is not None and not self.in_progress.is_done()

    def wait_for_folder(self) -> None:
        """Where files cannot be linked, wait until the run's folder is sent: then they may change."""
        with self._lock:
            parcels = [parcel for parcel in self._parcels if parcel.snapshot is None]
        PushInProgress([parcel.future for parcel in parcels]).wait_until_done()

    def push_folder(
        self, name: str, message: str, revision: str | None = None, token: str | None = None
    ) -> Future[Any]:
        """Queue the run's folder: model, card and results, without checkpoints; the future has its commit."""
        files = find_run_files(self.folder)
        # the next save must not change what is being sent
        place = hold_files(files, self.folder, MODEL_FOLDER)
        if place is not None:
            files = {part: place / part for part in files}
        parcel = Parcel([name], message, files, revision, token, snapshot=place)
        return self._submit(parcel, at_once=True)

    def push_checkpoint(self, checkpoint: Path, message: str) -> Future[Any]:
        """Queue a sealed checkpoint: its model, and all of it if the strategy says so."""
        if not self._has_swept:
            drop_leftovers(self.folder)
            self._has_swept = True
        self.postponed.pop(checkpoint.name, None)
        place = take_snapshot(checkpoint, self.folder)
        files = find_model_files(place)
        if not files:
            logger.warning(
                "The model of %s is not pushed: it is in shards. Set save_full_model=True.", checkpoint.name
            )
        files |= find_resume_files(place, self.ledger.strategy)
        names = names_of(checkpoint.name, self.ledger.strategy)
        return self._submit(Parcel(names, message, files, snapshot=place))

    def postpone(self, checkpoint: Path) -> None:
        """Leave a checkpoint for later: another push is under way."""
        self.postponed[checkpoint.name] = checkpoint
        self.expect(names_of(checkpoint.name, self.ledger.strategy))

    def expect(self, names: list[str]) -> None:
        """Note what has not been sent yet."""
        with self._lock:
            self.ledger.expect(names)
            self.ledger.save(self.folder)

    def take_postponed(self) -> list[Path]:
        """The checkpoints that were left for later and are still worth sending: all, or the newest one."""
        left = [path for path in self.postponed.values() if path.is_dir()]
        self.postponed = {}
        return left if self.ledger.strategy == "all_checkpoints" else left[-1:]

    def wait(self) -> None:
        """Wait until everything that is queued has arrived or failed."""
        if self.in_progress is not None:
            self.in_progress.wait_until_done()

    def wait_briefly(self) -> None:
        """Wait for a Hub that is about to finish, and not for one that is slow; then name what is missing."""
        self._guard.flush()
        self._forget_removed()
        if self.ledger.waiting and self.is_busy:
            logger.info("Still on its way to the Hub: %s.", ", ".join(self.ledger.waiting))
        elif self.ledger.waiting:
            logger.warning(
                "NOT ON THE HUB: %s. To send it: %s", ", ".join(self.ledger.waiting), self._guard.sync_command
            )

    # ---- helpers ----

    def _forget_removed(self) -> None:
        """Say which checkpoints cannot be sent any more, since rotation has removed them."""
        with self._lock:
            queued = {name for parcel in self._parcels for name in parcel.names}
            gone = [
                name
                for name in self.ledger.waiting
                if name.startswith("checkpoint-") and name not in queued and not (self.folder / name).is_dir()
            ]
            self.ledger.waiting = [name for name in self.ledger.waiting if name not in gone]
            self.ledger.save(self.folder)
        if gone:
            logger.warning(
                "Removed before it was sent to the Hub: %s. Set hub_always_push=True to queue each one.",
                ", ".join(gone),
            )

    def _submit(self, parcel: Parcel, at_once: bool = False) -> Future[Any]:
        with self._lock:
            self.ledger.expect(parcel.names)
            self.ledger.save(self.folder)
            self._wake(at_once)
            self._parcels.append(parcel)
            busy = self.in_progress.jobs if self.in_progress is not None and self.is_busy else []
            self.in_progress = PushInProgress([*busy, parcel.future])
        if self._guard.is_off or not parcel.files:
            self._close(
                parcel, PushError(f"Nothing is sent to the Hub now. Later: {self._guard.sync_command}")
            )
        else:
            self._guard.submit(self._push, parcel)
        return parcel.future

    def _wake(self, at_once: bool) -> None:
        """Switch the guard on again, if the pause after a failure is over, or if somebody asks for it."""
        deadline = time.monotonic() + (2.0 if at_once else 0.0)
        while self._guard.is_off and (at_once or time.monotonic() >= self._quiet_until):
            self._guard.revive()  # it waits for the thread to end the call that failed
            if time.monotonic() >= deadline:
                return
            time.sleep(0.01)

    def _close(self, parcel: Parcel, error: BaseException | None, commit: Any = None) -> None:
        """Tell those who wait for a parcel what came of it."""
        with self._lock:
            if parcel not in self._parcels:
                return
            self._parcels.remove(parcel)
        if parcel.snapshot is not None:
            drop_snapshot(parcel.snapshot)
        if error is None:
            parcel.future.set_result(commit)
        else:
            parcel.future.set_exception(error)

    # ---- on the guard's thread ----

    def _create(self) -> None:
        """Make the repository."""
        self.ledger.repository = self.repository.create()

    def _push(self, parcel: Parcel) -> None:
        """Send one parcel, and note it."""
        commit = self.repository.send(parcel.files, parcel.message, parcel.revision, parcel.token)
        self._pause = FIRST_PAUSE
        with self._lock:
            self.ledger.repository = self.repository.repo_id or self.ledger.repository
            self.ledger.arrive(parcel.names)
            self.ledger.save(self.folder)
        self._close(parcel, None, commit)

    def _give_up(self) -> None:
        """All attempts have failed: end what waits, and leave the Hub in peace for a while."""
        error = self._guard.error
        for parcel in list(self._parcels):
            self._close(parcel, PushError(f"{error} To send it later: {self._guard.sync_command}"))
        self._quiet_until = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
