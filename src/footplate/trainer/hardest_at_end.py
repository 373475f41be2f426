"""The hardest rows of a run, found when it has ended: a file, a table, a note for the report."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING

from footplate import comm
from footplate.samples.hardest import HardestRows, write_hardest
from footplate.samples.table import print_table
from footplate.trainer.hardest import find_hardest
from footplate.training.rehearsal import describe_failure
from footplate.training.signals import ignore_children
from footplate.voice import say

if TYPE_CHECKING:
    from footplate.trainer.training import Training

logger = logging.getLogger(__name__)

SHOWN_ROWS = 10  # of the table; the file has all
LONG_SECONDS = 10.0  # a pass that takes longer says what it does, or it would look like a run that hangs


def show_hardest(trainer: Training) -> None:
    """Find the hardest rows and show them; whatever happens, the training that is done stays done."""
    run, step = trainer._current_run, trainer.state.global_step
    if step < run.plan.max_steps and run.accord.stop_reason is not None:
        return  # it is not over: it goes on when it is resumed
    is_silent, began = trainer.is_world_process_zero(), time.monotonic()

    def should_stop() -> bool:
        nonlocal is_silent
        if is_silent and time.monotonic() - began > LONG_SECONDS:
            is_silent = False
            say("Training is over. Looking for the hardest rows: Ctrl-C ends this.", sys.stdout)
        return has_no_time(trainer)

    try:
        found = find_hardest(trainer, trainer.args.hardest_rows, should_stop=should_stop)
        if found.num_rows:
            tell(trainer, found)
        elif found.num_unlabelled:
            logger.warning(
                "hardest_rows=%d: no row has a label that counts, and so none has a loss.",
                trainer.args.hardest_rows,
            )
    except Exception as error:  # looking at rows must never fail a training
        logger.warning(
            "hardest_rows=%d: the hardest rows were not found, and training has ended well all the same. %s",
            trainer.args.hardest_rows,
            describe_failure(error),
        )
    if any(comm.gather_objects(is_stopped(trainer))):
        seal_last_update(trainer)


def is_stopped(trainer: Training) -> bool:
    """Whether a signal asks this process to end."""
    return bool(trainer._current_run.signals.received)


def has_no_time(trainer: Training) -> bool:
    """Whether the pass must end: by a signal, or since `max_time` is over."""
    return is_stopped(trainer) or trainer._current_run.clock.should_stop()


def tell(trainer: Training, found: HardestRows) -> None:
    """Write the file, print the table, and tell every callback."""
    step = trainer.state.global_step
    if trainer.is_world_process_zero():
        print_table(lambda width, in_color: found.format(SHOWN_ROWS, width, in_color))
        try:
            path = write_hardest(found, trainer._current_run.anchor(str(trainer.args.output_dir)), step)
        except OSError as error:
            logger.warning("The hardest rows could not be written to a file: %s.", error)
        else:
            say(f"All {len(found.rows)} are in {path}", sys.stdout)
    trainer.callback_handler.extras["note"]("hardest", **found.to_note())


def seal_last_update(trainer: Training) -> None:
    """A signal ended the pass and will end the process: seal the last update, if nothing holds it yet."""
    run, state = trainer._current_run, trainer.state
    if trainer.args.load_best_model_at_end and state.best_model_checkpoint is not None:
        return  # the weights in memory are those of the best checkpoint, which is on disk
    if any(comm.gather_objects(run.saves.sealed_step == state.global_step)):
        return
    summary = state.log_history.pop()  # the resumed run, which has no update left, makes it again
    try:
        with ignore_children():
            trainer._save_checkpoint(trainer.model_wrapped, trainer._trial)
            run.saves.join()
    finally:
        state.log_history.append(summary)
    comm.barrier()
