"""How the Trainer searches with a sweep of Weights & Biases: each trial is one run there."""

from __future__ import annotations

import os
from collections.abc import Callable

from footplate import comm
from footplate.integrations.headings import rewrite_logs
from footplate.integrations.wandb import WandbCallback
from footplate.outputs import BestRun
from footplate.search.backends import Options
from footplate.search.desk import Desk
from footplate.search.objective import Objective
from footplate.search.outcomes import Outcome
from footplate.search.record import FOLDER_NAME, TrialRecord
from footplate.search.session import Session
from footplate.search.summary import SearchSummary
from footplate.search.wandb_study import WandbStudy
from footplate.search.wandb_sweep import build_sweep
from footplate.trainer.training import Training
from footplate.trainer.trial_runs import run_in_turn


def run_by_sweep(
    trainer: Training,
    objective: Objective,
    record: TrialRecord | None,
    num_trials: int | None,
    options: Options,
    ended: Callable[[Outcome], None],
) -> str:
    """Run the trials that a sweep of W&B hands out; returns the id of the sweep. All ranks call this.

    Args:
        trainer: The Trainer.
        objective: What trials are compared by.
        record: The trials that have ended, on the first rank.
        num_trials: How many there are in all.
        options: What else was given.
        ended: Called with each outcome.
    """
    tracker = find_tracker(trainer)
    if is_added := tracker is None:
        tracker = WandbCallback()
        trainer.add_callback(tracker)
    tracker.finish()  # a run of before has an end: each trial is one of its own
    given = dict(options.study)
    metric, name = given.pop("metric", None), given.pop("name", None)
    if metric is None and objective.metric:
        metric = next(iter(rewrite_logs({objective.metric: 0.0})))  # as the tracker calls it
    study: WandbStudy | None = None
    problem: Exception | None = None
    try:
        if record is not None:
            sweep = build_sweep(trainer.hp_space, objective.directions, metric, name)
            study = WandbStudy(sweep, record, num_trials, settle=tracker.wait_for_service, **given)
    except Exception as error:
        problem = error
    comm.raise_together(problem)
    desk = None
    if study is not None and record is not None:
        desk = Desk(study, record, num_trials, options.timeout, trainer.hp_name)
    folder = os.path.join(str(trainer.args.output_dir), FOLDER_NAME)
    session = trainer._current_search = Session(objective, desk, folder)
    try:
        run_in_turn(trainer, session, desk, options.catch, ended)
    finally:
        if study is not None:
            study.close()
        tracker.finish()
        if is_added:
            trainer.remove_callback(tracker)
    found: str = comm.ask_first(lambda: study and study.sweep_id)
    return found


def find_tracker(trainer: Training) -> WandbCallback | None:
    """The callback that sends runs to W&B, if there is one."""
    callbacks = trainer.callback_handler.callbacks
    return next((one for one in callbacks if isinstance(one, WandbCallback)), None)


def best_run_of(sweep_id: str, summary: SearchSummary) -> BestRun:
    """The best trial as users of W&B know it: with the id of the sweep.

    Args:
        sweep_id: The id.
        summary: All trials.
    """
    return summary.best_run()._replace(run_summary=sweep_id)
