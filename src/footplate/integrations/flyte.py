"""Flyte: the log history on the task's page, and checkpoints from which a retried task resumes."""

from __future__ import annotations

import contextvars
import html
import os
import sys
from typing import TYPE_CHECKING, Any

from footplate.integrations.base import TrackerCallback
from footplate.integrations.guard import SetupError
from footplate.integrations.registry import import_client
from footplate.integrations.run import Run
from footplate.integrations.values import columns_of
from footplate.state import TrainerControl, TrainerState

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments


class FlyteCallback(TrackerCallback):
    """Reports from inside a Flyte task.

    In the task, `trainer.train(resume_from_checkpoint=current_context().checkpoint.restore())` resumes from
    what an interrupted attempt has saved.

    Args:
        save_log_history: Show the log history as a deck.
        sync_checkpoints: Save every sealed checkpoint with Flyte.
    """

    name = "flyte"

    def __init__(self, save_log_history: bool = True, sync_checkpoints: bool = True) -> None:
        super().__init__()
        self.save_log_history, self.sync_checkpoints = save_log_history, sync_checkpoints
        self.cp: Any = None
        self._context = contextvars.copy_context()
        self._history: list[dict[str, Any]] = []

    def open(self, run: Run) -> str | None:
        """Find the task that the run is in."""
        flytekit = import_client("flytekit", tracker="flyte")
        current = self._context.run(flytekit.current_context)
        try:
            self.cp = current.checkpoint
        except NotImplementedError:
            self.cp = None
        if self.cp is None:
            raise SetupError("FlyteCallback works only inside a Flyte task, and this run is not in one.")
        return str(current.execution_id)

    def write(self, values: dict[str, Any], step: int) -> None:
        """Do nothing: the page is made when training ends."""

    def write_checkpoint(self, folder: str, step: int) -> None:
        """Save the folder with Flyte."""
        if self.sync_checkpoints and os.path.isdir(folder):
            self._context.run(self.cp.save, folder)

    def end(self, metrics: dict[str, Any], step: int) -> None:
        """Show the history on the task's page."""
        if self.save_log_history:
            from flytekit import Deck

            self._context.run(Deck, "Log History", _to_html(self._history))

    # ---- events of the run ----

    def resume(self, run: Run) -> None:
        """Continue `run`, and copy the context of this thread: Flyte keeps the task in it."""
        super().resume(run)
        if "flytekit" in sys.modules:  # in a task it is always imported
            self._context = contextvars.copy_context()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Keep the whole history, including what was logged before a resume, for the page."""
        self._history = [dict(entry) for entry in state.log_history]
        super().on_train_end(args, state, control, **kwargs)


def _to_html(rows: list[dict[str, Any]]) -> str:
    """A table with a column for every key."""
    columns = columns_of(rows)
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(row.get(column, '')))}</td>" for column in columns) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
