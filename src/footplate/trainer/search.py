"""How the Trainer searches: every trial is a `train()` with settings, folder and model of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from footplate import comm
from footplate.arguments.notices import warn_once
from footplate.checkpoint.lock import take_folder
from footplate.outputs import BestRun, HPSearchBackend
from footplate.search.backends import Options, build_study, choose_backend, read_options
from footplate.search.desk import Desk
from footplate.search.objective import Objective, choose_objective
from footplate.search.outcomes import Outcome
from footplate.search.record import FOLDER_NAME, TrialRecord
from footplate.search.session import Session, check_progress
from footplate.search.summary import SearchSummary, describe_outcome
from footplate.search.trial import fixed_trial
from footplate.trainer.side_by_side import run_in_processes
from footplate.trainer.training import Training
from footplate.trainer.trial_runs import run_in_turn
from footplate.training.seed import seed_run
from footplate.voice import is_quiet, say


def search(
    trainer: Training,
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
    check_is_alone(chosen, options)
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
        progress = Progress(trainer, objective, record, n_trials)
        trainer.hp_search_backend = chosen
        try:
            driven = make_trials(trainer, chosen, objective, progress, options)
        finally:
            trainer.hp_search_backend = trainer._current_search = trainer._trial = None
        progress.close()
        outcomes = comm.broadcast_object(record.outcomes if record is not None else None)
    outcomes = sorted(outcomes, key=lambda outcome: outcome.number)  # several may have run at the same time
    summary = SearchSummary(home, objective.name, objective.directions, outcomes)
    restore_model(trainer, summary, options.load_best)
    if driven is not None:
        return driven(summary)
    return summary.best_runs() if len(objective.directions) > 1 else summary.best_run()


def make_trials(
    trainer: Training, backend: HPSearchBackend, objective: Objective, progress: Progress, options: Options
) -> Callable[[SearchSummary], BestRun] | None:
    """Make the trials of a search: one after another, or several at the same time.

    Where the backend itself makes them, return what gives the best one as that backend's users know it.
    """
    if backend is HPSearchBackend.RAY:
        from footplate.trainer import ray_trials

        assert progress.record is not None  # one process
        analysis = ray_trials.run_by_ray(
            trainer, objective, progress.record, progress.num_trials, options, progress.ended
        )
        return partial(ray_trials.best_run_of, analysis)
    if backend is HPSearchBackend.WANDB:
        from footplate.trainer import sweep_trials

        sweep_id = sweep_trials.run_by_sweep(
            trainer, objective, progress.record, progress.num_trials, options, progress.ended
        )
        return partial(sweep_trials.best_run_of, sweep_id)
    hp_space, seed = trainer.hp_space, trainer.args.seed

    def build(record: TrialRecord) -> Desk:
        study = build_study(backend, hp_space, objective.directions, record, seed, options)
        return Desk(study, record, progress.num_trials, options.timeout, trainer.hp_name)

    desk = build_together(progress.record, build)
    if options.num_jobs > 1:
        assert desk is not None
        run_in_processes(trainer, objective, desk, options.num_jobs, options.catch, progress.ended)
        return None
    folder = os.path.join(str(trainer.args.output_dir), FOLDER_NAME)
    session = trainer._current_search = Session(objective, desk, folder)
    run_in_turn(trainer, session, desk, options.catch, progress.ended)
    return None


def check_can_search(trainer: Training) -> None:
    """Refuse a search without `model_init`, or without rows to compare trials on."""
    if trainer.model_init is None:
        raise RuntimeError(
            "A search makes a new model for every trial. Pass model_init=..., a function that returns the "
            "model, to the Trainer instead of model=..."
        )
    if trainer.eval_dataset is None:
        raise ValueError("A search compares trials by an evaluation. Pass eval_dataset=... to the Trainer.")


def check_can_load(trainer: Training, loads_best: bool) -> None:
    """Refuse to promise the best model if no trial will save one."""
    if loads_best and trainer.args.save_strategy == "no":
        raise ValueError(
            "load_best=True loads the checkpoint of the best evaluation, and save_strategy='no' writes none. "
            "Set save_strategy='best'."
        )


def check_is_alone(backend: HPSearchBackend, options: Options) -> None:
    """Refuse to start processes for trials from one of several ranks."""
    what = "backend='ray'" if backend is HPSearchBackend.RAY else f"n_jobs={options.num_jobs}"
    if comm.world_size() > 1 and (backend is HPSearchBackend.RAY or options.num_jobs > 1):
        raise ValueError(
            f"{what} starts a process for each trial, and this process is one of {comm.world_size()} ranks. "
            "Start the script without a launcher; or leave n_jobs unset and choose another backend: then all "
            "ranks train each trial together."
        )


def open_record(trainer: Training, stack: ExitStack, read: Callable[[], TrialRecord]) -> TrialRecord | None:
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


def build_together(record: TrialRecord | None, build: Callable[[TrialRecord], Desk]) -> Desk | None:
    """What hands out trials, on the first rank; an error there is raised on all."""
    desk: Desk | None = None
    problem: Exception | None = None
    try:
        desk = build(record) if record is not None else None
    except Exception as error:
        problem = error
    comm.raise_together(problem)
    return desk


class Progress:
    """Says what a search compares trials by, how each one ended, and draws its page.

    Args:
        trainer: The Trainer.
        objective: What trials are compared by.
        record: The trials that have ended, on the first rank.
        num_trials: How many there are in all.
    """

    def __init__(
        self, trainer: Training, objective: Objective, record: TrialRecord | None, num_trials: int | None
    ) -> None:
        self.record, self.num_trials = record, num_trials
        self._args, self._objective = trainer.args, objective
        self._made: list[Outcome] = []
        if record is None:
            return
        lines = [f"The search will {objective.text}."]
        if record.moved_to is not None:
            lines.append(f"An earlier search in the same folder is in {record.moved_to} now.")
        if record.outcomes:
            lines.append(
                f"{len(record.outcomes)} trial(s) of it are in {record.path} already, of {num_trials}. To "
                "begin anew, pass resume=False (--anew on the command line)."
            )
        self._say(" ".join(lines))
        self._draw(is_over=False)

    def ended(self, outcome: Outcome) -> None:
        """Say how a trial ended; raise if none of the first ones came to its end."""
        self._made.append(outcome)
        self._say(describe_outcome(outcome))
        self._draw(is_over=False)
        check_progress(self._made, self.num_trials)

    def close(self) -> None:
        """Draw the page of a search that is over."""
        self._draw(is_over=True)

    def _say(self, text: str) -> None:
        """Print a line, unless only errors are to be shown."""
        if self._args.should_log and not is_quiet():
            say(text, sys.stderr)

    def _draw(self, is_over: bool) -> None:
        """Write the page; a page that cannot be written ends no search."""
        if self.record is None or not self._args.report:
            return
        from footplate.search.page import save_search_page  # with what it draws by

        summary = SearchSummary(
            self.record.output_dir, self._objective.name, self._objective.directions, self.record.outcomes
        )
        try:
            save_search_page(summary, self.num_trials, is_over)
        except OSError as error:
            warn_once(f"The page of the search cannot be written: {error}. The search goes on.")


def restore_model(trainer: Training, summary: SearchSummary, loads_best: bool) -> None:
    """Give the trainer a model again: the best one if that is asked for, else a new one."""
    args, best = trainer.args, summary.best
    trial = fixed_trial(best[0].number, best[0].params) if best and loads_best else None
    seed_run(args.seed, args.full_determinism)
    trainer._set_model(trainer.call_model_init(trial))
    trainer.callback_handler.model = trainer.model
    if loads_best:
        summary.best_run()  # or the error that there is none
        checkpoint = summary.best_checkpoint
        if checkpoint is None:
            raise ValueError(
                "load_best=True, and the best trial has no checkpoint of its best evaluation. Set "
                "save_strategy='best', so that one is written at every new best."
            )
        trainer._load_from_checkpoint(checkpoint)
