"""How the Trainer searches: every trial is a `train()` with settings, folder and model of its own."""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from footplate import comm
from footplate.checkpoint.lock import take_folder
from footplate.checkpoint.named import check_usable
from footplate.checkpoint.rotation import PREFIX_CHECKPOINT_DIR
from footplate.integrations.base import TrackerCallback
from footplate.outputs import BestRun, HPSearchBackend
from footplate.search.backends import Options, build_study, choose_backend, read_options
from footplate.search.objective import choose_objective
from footplate.search.optuna_study import is_prune
from footplate.search.outcomes import Outcome
from footplate.search.record import TrialRecord
from footplate.search.session import Chief, Session, check_progress
from footplate.search.studies import Study
from footplate.search.summary import SearchSummary, describe_outcome
from footplate.search.trial import fixed_trial
from footplate.state import TRAINER_STATE_NAME, KeptStates
from footplate.trainer.run import Run
from footplate.trainer.training import Training
from footplate.training.seed import seed_run
from footplate.voice import is_quiet, say

logger = logging.getLogger(__name__)

DERIVED = ("_train_batch_size", "neftune_noise_alpha", "label_smoother")  # what a trial makes of its settings


class Searching(Training):
    """Training again and again, each time with other settings."""

    def hyperparameter_search(
        self,
        hp_space: Any = None,
        compute_objective: Callable[[dict[str, float]], Any] | None = None,
        n_trials: int | None = 20,
        direction: str | list[str] | None = None,
        backend: str | HPSearchBackend | None = None,
        hp_name: Callable[[Any], str] | None = None,
        **kwargs: Any,
    ) -> BestRun | list[BestRun]:
        """Train with different settings, and return which were best; a second call goes on after a kill.

        Args:
            hp_space: A function of a trial that gives settings by name, or a dictionary of lists and ranges.
            compute_objective: The number to compare, or several, from the metrics of an evaluation; default:
                `metric_for_best_model`. The best evaluation of a trial counts.
            n_trials: How many trials in all.
            direction: "minimize" or "maximize", or a list of these; default: as the metric needs it.
            backend: "optuna", "random" or "grid"; default: Optuna where it is installed, else "random".
            hp_name: The name of a trial, for its folder and for trackers; default `run-<number>`.
            **kwargs: `load_best=True` loads the best model afterwards, `resume=False` begins anew, `timeout`
                in seconds, `catch`: errors that end a trial only; and those of `optuna.create_study`.
        """
        self.hp_space, self.hp_name, self.compute_objective = hp_space, hp_name, compute_objective
        return search(self, hp_space, compute_objective, n_trials, direction, backend, kwargs)

    def _tune_save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write a checkpoint of the run as it is now into a folder of somebody else's search."""
        folder = os.path.join(checkpoint_dir, f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
        self.save_model(folder, _internal_call=True)
        if self.args.should_save:
            self.state.stateful_callbacks["TrainerControl"] = self.control.state()
            self.state.save_to_json(os.path.join(folder, TRAINER_STATE_NAME))
            self._save_optimizer_and_scheduler(folder)


def search(
    trainer: Searching,
    hp_space: Any,
    compute_objective: Callable[[dict[str, float]], Any] | None,
    n_trials: int | None,
    direction: str | list[str] | None,
    backend: str | HPSearchBackend | None,
    kwargs: dict[str, Any],
) -> BestRun | list[BestRun]:
    """Run a search, and leave the trainer as it was, or with the best model if that is asked for."""
    check_can_search(trainer)
    args, home = trainer.args, str(trainer.args.output_dir)
    chosen = choose_backend(backend)
    options = read_options(chosen, kwargs)
    check_can_load(trainer, options.load_best)
    objective = choose_objective(
        compute_objective, direction, args.metric_for_best_model, args.greater_is_better
    )
    about: dict[str, Any] = {
        "backend": chosen.value,
        "directions": objective.directions,
        "objective": objective.name,
    }
    if isinstance(hp_space, dict):
        about["space"] = hp_space
    with ExitStack() as stack:
        record = open_record(trainer, stack, lambda: TrialRecord(home, about, options.resumes))
        chief = find_chief(
            record,
            lambda found: build_study(chosen, hp_space, objective.directions, found, args.seed, options),
        )
        announce(trainer, objective.text, record, n_trials)
        trainer.hp_search_backend = chosen
        trainer._current_search = Session(objective, chief, trainer.hp_name)
        try:
            run_trials(trainer, trainer._current_search, n_trials, options)
        finally:
            trainer.hp_search_backend = trainer._current_search = trainer._trial = None
        outcomes = comm.broadcast_object(record.outcomes if record is not None else None)
    summary = SearchSummary(home, objective.name, objective.directions, outcomes)
    restore_model(trainer, summary, options.load_best)
    return summary.best_runs() if len(objective.directions) > 1 else summary.best_run()


def check_can_search(trainer: Searching) -> None:
    """Refuse a search without `model_init`, or without rows to compare trials on."""
    if trainer.model_init is None:
        raise RuntimeError(
            "A search makes a new model for every trial. Pass model_init=..., a function that returns the "
            "model, to the Trainer instead of model=..."
        )
    if trainer.eval_dataset is None:
        raise ValueError("A search compares trials by an evaluation. Pass eval_dataset=... to the Trainer.")


def check_can_load(trainer: Searching, loads_best: bool) -> None:
    """Refuse to promise the best model if no trial will save one."""
    if loads_best and trainer.args.save_strategy == "no":
        raise ValueError(
            "load_best=True loads the checkpoint of the best evaluation, and save_strategy='no' writes none. "
            "Set save_strategy='best'."
        )


def open_record(trainer: Searching, stack: ExitStack, read: Callable[[], TrialRecord]) -> TrialRecord | None:
    """The record of the search on the first rank, which locks the folder until the search ends; else None."""
    record: TrialRecord | None = None
    problem: Exception | None = None
    if trainer.is_world_process_zero():
        try:
            _, problem = take_folder(stack, str(trainer.args.output_dir))
            record = read() if problem is None else None
        except OSError as error:
            problem = ValueError(f"The search cannot write into its output_dir: {error}")
    comm.raise_together(problem)
    return record


def find_chief(record: TrialRecord | None, build: Callable[[TrialRecord], Study]) -> Chief | None:
    """Study and record on the first rank; an error there is raised on all."""
    chief: Chief | None = None
    problem: Exception | None = None
    try:
        chief = Chief(build(record), record) if record is not None else None
    except Exception as error:
        problem = error
    comm.raise_together(problem)
    return chief


def announce(trainer: Searching, text: str, record: TrialRecord | None, n_trials: int | None) -> None:
    """Say what the search compares trials by, and where it goes on."""
    if record is None:
        return
    lines = [f"The search will {text}."]
    if record.moved_to is not None:
        lines.append(f"An earlier search in the same folder is in {record.moved_to} now.")
    if record.outcomes:
        lines.append(
            f"{len(record.outcomes)} trial(s) of it are in {record.path} already, of {n_trials}. To begin "
            "anew, pass resume=False."
        )
    tell_people(trainer, " ".join(lines))


def tell_people(trainer: Searching, text: str) -> None:
    """Print a line, unless only errors are to be shown."""
    if trainer.args.should_log and not is_quiet():
        say(text, sys.stderr)


# ---- trials ----


def run_trials(trainer: Searching, session: Session, n_trials: int | None, options: Options) -> None:
    """Run trials one after another until there are enough."""
    deadline = None if options.timeout is None else time.monotonic() + options.timeout
    settings = vars(trainer.args).copy()
    derived = {name: getattr(trainer, name) for name in DERIVED}
    callbacks = (one for one in trainer.callback_handler.callbacks if not isinstance(one, TrackerCallback))
    states = KeptStates(callbacks)
    outcomes: list[Outcome] = []
    release(trainer)
    while session.ask(n_trials, deadline if outcomes else None):  # at least one, however short the time
        try:
            outcome = run_trial(trainer, session, options)
        finally:
            vars(trainer.args).clear()
            vars(trainer.args).update(settings)
            vars(trainer).update(derived)
            states.put_back()
            release(trainer)
        session.tell(outcome)
        outcomes.append(outcome)
        tell_people(trainer, describe_outcome(outcome))
        check_progress(outcomes, n_trials)


def run_trial(trainer: Searching, session: Session, options: Options) -> Outcome:
    """One trial: train, and evaluate if training did not; an error that is caught ends this trial only."""
    trial = session.trial
    try:
        trainer.train(trial=trial)
        if not session.evaluated:
            trainer._report_to_hp_search(trial, trainer.state.global_step, trainer.evaluate())
        folder = str(trainer.args.output_dir)
        return session.finish(trainer.state.best_global_step, lambda step: find_saved(folder, step))
    except Exception as error:
        if comm.world_size() > 1:
            # other ranks may wait in an exchange, which nothing can call back: a restart goes on after it
            if session.chief is not None:
                session.tell(session.fail(error))
            raise
        if not is_prune(error) and not isinstance(error, options.catch):
            raise
        if not is_prune(error):
            logger.warning("Trial %d failed; the search goes on.", trial.number, exc_info=error)
        return session.fail(error, is_prune(error))


def find_saved(folder: str, step: int) -> str | None:
    """The name of the checkpoint of an update, if it is there and can be used."""
    name = f"{PREFIX_CHECKPOINT_DIR}-{step}"
    try:
        check_usable(os.path.join(folder, name), needs_state=False)
    except (OSError, ValueError):
        return None
    return name


# ---- the model between trials and after them ----


def release(trainer: Searching) -> None:
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


def restore_model(trainer: Searching, summary: SearchSummary, loads_best: bool) -> None:
    """Give the trainer a model again: the best one if that is asked for, else a new one."""
    args, best = trainer.args, summary.best
    trial = fixed_trial(best[0].number, best[0].params) if best and loads_best else None
    seed_run(args.seed, args.full_determinism)
    trainer._set_model(trainer.call_model_init(trial))
    trainer.callback_handler.model = trainer.model
    if loads_best:
        checkpoint = summary.best_checkpoint
        if checkpoint is None:
            raise ValueError(
                "load_best=True, and the best trial has no checkpoint of its best evaluation. Set "
                "save_strategy='best', so that one is written at every new best."
            )
        trainer._load_from_checkpoint(checkpoint)
