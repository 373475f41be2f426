"""How the Trainer runs the trials of a search: one by one, with everything put back after each."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
from collections.abc import Callable
from contextlib import closing
from typing import Any

import torch
from torch import nn

from footplate import comm
from footplate.checkpoint.named import check_usable
from footplate.checkpoint.rotation import PREFIX_CHECKPOINT_DIR
from footplate.distributed.failures import RankFailed
from footplate.integrations.base import TrackerCallback
from footplate.outputs import TrainOutput
from footplate.report.files import save_text
from footplate.search.desk import Begun, Desk
from footplate.search.optuna_study import is_prune
from footplate.search.outcomes import Outcome
from footplate.search.session import Session
from footplate.search.trial import fixed_trial
from footplate.state import KeptStates
from footplate.trainer.run import Run
from footplate.trainer.training import Training

logger = logging.getLogger(__name__)

Caught = tuple[type[BaseException], ...]

RESULTS_NAME = "train_results.json"
DERIVED = ("_train_batch_size", "neftune_noise_alpha", "label_smoother")  # what a trial makes of its settings


class Start:
    """What every trial begins with: the settings, and the states of callbacks.

    Args:
        trainer: The Trainer before the first trial.
    """

    def __init__(self, trainer: Training) -> None:
        self.trainer = trainer
        self._settings = vars(trainer.args).copy()
        self._derived = {name: getattr(trainer, name) for name in DERIVED}
        callbacks = trainer.callback_handler.callbacks
        self._states = KeptStates(one for one in callbacks if not isinstance(one, TrackerCallback))
        release(trainer)
        # what is there now stays: the collector need not walk through it after each trial, which in a
        # process with many modules takes longer than a short trial
        self._freezes = gc.get_freeze_count() == 0  # else it is the user who does so
        if self._freezes:
            gc.freeze()

    def close(self) -> None:
        """End the search: the collector sees everything again."""
        if self._freezes:
            gc.unfreeze()

    def put_back(self) -> None:
        """Make the Trainer as it was, and let go of what the trial has left."""
        vars(self.trainer.args).clear()
        vars(self.trainer.args).update(self._settings)
        vars(self.trainer).update(self._derived)
        self._states.put_back()
        release(self.trainer)


def run_in_turn(
    trainer: Training, session: Session, desk: Desk | None, caught: Caught, ended: Callable[[Outcome], None]
) -> None:
    """Run trials one after another until no further one begins. All ranks call this.

    Args:
        trainer: The Trainer.
        session: The search.
        desk: Where trials come from, on the first rank.
        caught: Errors that end a trial only.
        ended: Called with each outcome.
    """
    with closing(Start(trainer)) as start:
        while (begun := comm.ask_first(lambda: desk and desk.ask())) is not None:
            known = fixed_trial(begun.number, begun.params)
            trial = desk.trials[begun.number] if desk is not None else known
            outcome = run_one(start, session, begun, trial, caught)
            session.tell(outcome)
            ended(outcome)


def run_one(
    start: Start, session: Session, begun: Begun, trial: Any, caught: Caught, checkpoint: str | None = None
) -> Outcome:
    """Run one trial, and put everything back.

    Args:
        start: What every trial begins with.
        session: The search.
        begun: Number, values and name of the trial.
        trial: What `model_init` is given.
        caught: Errors that end the trial only.
        checkpoint: Where the trial goes on, if it does.
    """
    session.begin(begun, trial)
    try:
        return train_trial(start.trainer, session, caught, checkpoint)
    finally:
        start.put_back()


def train_trial(trainer: Training, session: Session, caught: Caught, checkpoint: str | None) -> Outcome:
    """Train, and evaluate if training did not; an error that is caught ends this trial only."""
    trial = session.trial
    try:
        save_output(trainer, trainer.train(resume_from_checkpoint=checkpoint, trial=trial))
        if not session.evaluated:
            trainer._report_to_hp_search(trial, trainer.state.global_step, trainer.evaluate())
        folder = str(trainer.args.output_dir)
        return session.finish(trainer.state.best_global_step, lambda step: find_saved(folder, step))
    except Exception as error:
        is_caught = is_prune(error) or isinstance(error, caught)
        if comm.world_size() > 1:
            # other ranks may wait in an exchange, which nothing can call back: a restart goes on after it
            if is_caught:
                note_failure(session, error)
            raise
        if not is_caught:
            raise
        if not is_prune(error):
            logger.warning("Trial %d failed; the search goes on.", session.number, exc_info=error)
        return session.fail(error, is_prune(error))


def note_failure(session: Session, error: Exception) -> None:
    """Write down that the trial failed, here or on another rank; one that a kill has ended is made again."""
    if not isinstance(error, RankFailed):
        session.tell_alone(session.fail(error, is_prune(error)))
    elif error.failure is not None:
        cause = f"rank {error.failure.rank}: {error.failure.error}"
        session.tell_alone(session.fail(error).replace(error=cause))


def save_output(trainer: Training, output: TrainOutput) -> None:
    """Write what a trial's `train()` gave into its folder: another process may find that it is the best."""
    results = {**output.metrics, "global_step": output.global_step}
    with contextlib.suppress(OSError):  # a full disk: the trial is worth the same without it
        if trainer.args.should_save:
            save_text(json.dumps(results, indent=4), os.path.join(str(trainer.args.output_dir), RESULTS_NAME))


def find_saved(folder: str, step: int) -> str | None:
    """The name of the checkpoint of an update, if it is there and can be used."""
    name = f"{PREFIX_CHECKPOINT_DIR}-{step}"
    try:
        check_usable(os.path.join(folder, name), needs_state=False)
    except (OSError, ValueError):
        return None
    return name


def release(trainer: Training) -> None:
    """Let go of model, optimizer, loaders and run: whatever a trial has left, also one that failed."""
    handler = trainer.callback_handler
    trainer.optimizer = trainer.lr_scheduler = trainer.model_preparation_time = None
    trainer.model = trainer.model_wrapped = nn.Module()
    handler.model = handler.optimizer = handler.lr_scheduler = None
    handler.train_dataloader = handler.eval_dataloader = None
    trainer._eval_dataloaders.clear()
    trainer._current_run = Run(trainer.args, trainer._device, handler.extras)
    if trainer._accelerator is not None:
        trainer._accelerator.free_memory()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
