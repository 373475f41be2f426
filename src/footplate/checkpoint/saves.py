"""Write the checkpoints of one run: the thread, the copy in host memory, and which ones are sealed."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from footplate.checkpoint.publish import Contents, publish_checkpoint
from footplate.checkpoint.snapshot import HostCopy, num_bytes
from footplate.checkpoint.writer import BackgroundWriter

logger = logging.getLogger(__name__)


class Saves:
    """Writes checkpoints while training continues, and knows which of them are complete on disk.

    Args:
        check_folder: Called before each write; raises if this run may not write into its folder any more.
    """

    def __init__(self, check_folder: Callable[[], None] | None = None) -> None:
        self._check_folder = check_folder if check_folder is not None else lambda: None
        self.sealed_folder: str | None = None  # of the newest sealed checkpoint
        self.sealed_step: int | None = None
        self._requested_step: int | None = None
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
    ) -> None:
        """Publish a checkpoint, on the thread or at once; an error is kept until `poll` or `join`.

        Args:
            folder: The folder of the checkpoint.
            step: Updates made so far.
            contents: Everything besides the model.
            model_state: The model's weights, which training will change.
            save_model: Writes the model as it is now into the folder it is given.
            save_copy: Writes the model with the given copy of its weights.
            after: Called when the checkpoint is sealed.
            in_background: Copy the state, return, and write the copy on the thread.
        """
        state: dict[str, Any] = {"model": model_state, "optimizer": contents.optimizer}
        contents.num_bytes = num_bytes(state)
        copied = self._host_copy.take(state) if in_background else None
        if copied is not None:
            contents.optimizer = copied["optimizer"]
            contents.copy_small()

        def save(staging: str) -> None:
            if copied is None:
                save_model(staging)
            else:
                save_copy(staging, copied["model"])

        def publish() -> None:
            self._check_folder()
            publish_checkpoint(folder, save, contents)
            self.sealed_step, self.sealed_folder = step, folder
            self._unreported.append((step, folder))
            after()

        self._requested_step = step
        self._writer.write_in_place = not in_background
        self._writer.submit(publish, f"Writing {folder}")

    def poll(self) -> None:
        """Log the error of a write that has failed; never waits."""
        self._writer.poll()

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
            "Training failed after %d updates: %s: %s. All of them are in %s. Fix the cause, then call "
            "train(resume_from_checkpoint=True).",
            step,
            type(error).__name__,
            str(error),  # the error itself would keep its frames alive in a log that is kept
            self.sealed_folder,
        )
        return True

    def check_last(self, error: Exception | None) -> None:
        """Say it loudly if the last requested checkpoint is not on disk; the model is still in memory."""
        if self.sealed_step != self._requested_step:
            logger.error(
                "THE LAST CHECKPOINT, OF UPDATE %s, WAS NOT SAVED: %s. The newest one on disk is of update %s"
                ". The trained model is in memory: make room and call trainer.save_model(), or save it "
                "elsewhere with trainer.save_model(folder).",
                self._requested_step,
                error or "see the log",
                self.sealed_step,
            )
