"""Write the checkpoints of one run: the thread, the copy in host memory, and which ones are sealed."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from footplate.checkpoint.publish import Contents, publish_checkpoint
from footplate.checkpoint.snapshot import HostCopy, num_bytes
from footplate.checkpoint.space import is_refused_by_disk
from footplate.checkpoint.writer import BackgroundWriter

logger = logging.getLogger(__name__)

unsaved: list[str] = []  # runs of this process whose last checkpoint is not on disk, for an exit code
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 5.0, 300.0  # before a write that failed is tried again


class _Refused(NamedTuple):
    """A write that the disk refused, and when it is tried again."""

    publish: Callable[[], None]
    folder: str
    step: int
    is_copy: bool  # of the state as it was at that update, so that it can be written later
    next_try: float  # by the clock of time.monotonic


class Saves:
    """Writes checkpoints while training continues, and knows which of them are complete on disk.

    Args:
        check_folder: Called before each write; raises if this run may not write into its folder any more.
    """

    def __init__(self, check_folder: Callable[[], None] | None = None) -> None:
        self._check_folder = check_folder if check_folder is not None else lambda: None
        self.sealed_folder: str | None = None  # of the newest sealed checkpoint
        self.sealed_step: int | None = None
        self.sealed_names: set[str] = set()  # of all folders that were sealed
        self.foreign_folders: frozenset[str] = frozenset()  # named as checkpoints, and there before the run
        self._requested_step: int | None = None
        self._refused: _Refused | None = None  # set by the thread; the loop takes it away before a new try
        self._wait_seconds = FIRST_WAIT_SECONDS
        self._last_failure = ""  # of the last write, if it failed
        self._began_at = time.time()
        self._unreported: deque[tuple[int, str]] = deque()  # filled by the thread, emptied by the loop
        self._writer = BackgroundWriter()
        self._host_copy = HostCopy()

    def prepare(self, state: Any) -> None:
        """Allocate the memory of the first copy, on the thread: the first write to memory is slow."""
        self._writer.submit(
            lambda: self._host_copy.prepare(state), "Allocating memory for the first checkpoint"
        )

    def write(
        self,
        folder: str,
        step: int,
        contents: Contents,
        model_state: dict[str, Any],
        *,
        save_model: Callable[[str], None],
        save_copy: Callable[[str, dict[str, Any]], None],
        after: Callable[[], None],
        in_background: bool,
        make_room: Callable[[], bool] | None = None,
        finish: Callable[[], None] | None = None,
    ) -> None:
        """Publish a checkpoint, on the thread or at once; an error is kept until `poll` or `join`.

        Args:
            folder: The folder of the checkpoint.
            step: Updates made so far.
            contents: Everything besides the model.
            model_state: The model's weights, which training will change.
            save_model: Writes model, optimizer, schedule, scaler and generators as they are into a folder.
            save_copy: Writes the model with the given copy of its weights.
            after: Called when the checkpoint is sealed.
            in_background: Copy the state, return, and write the copy on the thread.
            make_room: Removes something from a full disk; False if it cannot.
            finish: Called when the write has ended, well or not. A write with it cannot be tried again by
                itself, since others take part in it.
        """
        state: dict[str, Any] = {"model": model_state, "optimizer": contents.optimizer}
        contents.num_bytes, contents.began_at = num_bytes(state), self._began_at
        self._refused = None  # the copy that it would write is about to be overwritten
        copied = self._host_copy.take(state) if in_background else None
        if copied is None:
            contents.leave_out_states()  # `save_model` writes them
        else:
            contents.optimizer = copied["optimizer"]
            contents.copy_small()

        def save(staging: str) -> None:
            if copied is None:
                save_model(staging)
            else:
                save_copy(staging, copied["model"])

        def publish() -> None:
            try:
                self._check_folder()
                publish_checkpoint(folder, save, contents, make_room)
            except Exception as error:
                self._last_failure = str(error)  # the error itself would keep its frames alive
                if is_refused_by_disk(error):
                    next_try = time.monotonic() + self._wait_seconds
                    is_copy = copied is not None and finish is None
                    self._refused = _Refused(publish, folder, step, is_copy, next_try)
                raise
            finally:
                if finish is not None:
                    finish()
            self._wait_seconds = FIRST_WAIT_SECONDS
            self.sealed_step, self.sealed_folder = step, folder
            self.sealed_names.add(os.path.basename(folder))
            self._unreported.append((step, folder))
            after()

        self._requested_step = step
        self._writer.write_in_place = not in_background
        self._writer.submit(publish, f"Writing {folder}")

    def follow(self, job: Callable[[], None], folder: str, in_background: bool) -> None:
        """Take part in a write that another rank leads; an error is kept until `poll` or `join`."""
        self._writer.write_in_place = not in_background
        self._writer.submit(job, f"Writing shards of {folder}")

    def poll(self) -> None:
        """Log the error of a write that has failed; never waits."""
        if self._writer.poll() is not None and self._refused is not None:
            logger.warning(
                "Writing %s is tried again in %.0f seconds, and once more at the end of training. Make room.",
                self._refused.folder,
                self._wait_seconds,
            )

    def retry(self) -> bool:
        """If it is time, write again what the disk refused; True if that must be a new save instead."""
        refused = self._refused
        if refused is None or time.monotonic() < refused.next_try:
            return False
        self.poll()  # an update may take longer than the wait, and the failure must be said first
        self._wait_seconds = min(2 * self._wait_seconds, LONGEST_WAIT_SECONDS)
        if refused.is_copy:
            self._write_again(refused)
            return False
        self._refused = None
        return True  # the state of that update is gone: that of now is as good

    def finish(self, step: int) -> Exception | None:
        """Wait for the last write; if the disk refused it, try once more. Return the error that is left.

        Args:
            step: Updates made in all.
        """
        error = self.join()
        refused = self._refused
        if refused is not None and (refused.is_copy or refused.step == step):
            self._write_again(refused)
            error = self.join()
        return error

    def _write_again(self, refused: _Refused) -> None:
        def publish() -> None:
            refused.publish()
            logger.warning("%s is written now.", refused.folder)

        self._refused = None
        self._writer.submit(publish, f"Writing {refused.folder} once more")

    def join(self) -> Exception | None:
        """Wait for the current write; return the error of a write that failed, once."""
        return self._writer.join()

    def sealed(self) -> Iterator[dict[str, Any]]:
        """Folder and step of each checkpoint sealed since the last call, as arguments of `on_seal`."""
        while self._unreported:
            step, folder = self._unreported.popleft()
            yield {"checkpoint": folder, "checkpoint_step": step}

    def report_sealed(self, step: int, error: Exception) -> bool:
        """Wait for the write that an error of the run caused; say where to resume, return whether one can."""
        failure = self.join()
        if failure is not None or self.sealed_step != step:
            return False
        logger.error(
            "Training failed after %d updates: %s. All of them are in %s. Fix the cause, then call "
            "train(resume_from_checkpoint=True).",
            step,
            # text: the error itself would keep its frames alive in a log that is kept
            f"{type(error).__name__}: {error}".rstrip(": ."),
            self.sealed_folder,
        )
        return True

    @property
    def is_last_saved(self) -> bool:
        """Whether the checkpoint that was asked for last is on disk; also if none was asked for."""
        return self.sealed_step == self._requested_step

    def check_last(self, error: Exception | None) -> None:
        """Say it loudly if the last requested checkpoint is not on disk; the model is still in memory."""
        if self.is_last_saved:
            return
        unsaved.append(f"update {self._requested_step}")
        logger.error(
            "THE LAST CHECKPOINT, OF UPDATE %s, WAS NOT SAVED: %s. %s. The trained model is in memory: save "
            "it elsewhere with trainer.save_model(folder), or fix the cause and call trainer.save_model().",
            self._requested_step,
            error or self._last_failure or "see the log",
            f"The newest one on disk is of update {self.sealed_step}"
            if self.sealed_step is not None
            else "This run has written no checkpoint at all",
        )
