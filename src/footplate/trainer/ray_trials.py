"""How the Trainer searches with Ray Tune: Ray makes the trials, in processes that get a copy of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from footplate.checkpoint.rotation import PREFIX_CHECKPOINT_DIR
from footplate.outputs import BestRun
from footplate.search.backends import Options
from footplate.search.desk import Begun
from footplate.search.objective import Objective
from footplate.search.outcomes import FAILED, MAXIMIZE, Outcome
from footplate.search.ray_tune import (
    OBJECTIVE,
    RaySession,
    build_config,
    complete_options,
    find_number,
    import_tune,
    read_outcome,
    run_tune,
)
from footplate.search.record import TrialRecord
from footplate.search.summary import SearchSummary
from footplate.trainer.training import Training
from footplate.trainer.trial_runs import Start, find_saved, release, run_one


def run_by_ray(
    trainer: Training,
    objective: Objective,
    record: TrialRecord,
    num_trials: int | None,
    options: Options,
    ended: Callable[[Outcome], None],
) -> Any:
    """Let Ray make the trials; returns its `ExperimentAnalysis`.

    Args:
        trainer: The Trainer, of which each process gets a copy.
        objective: What trials are compared by.
        record: The trials that have ended.
        num_trials: How many there are in all.
        options: What else was given.
        ended: Called with each outcome, after it was written.
    """
    args = trainer.args
    if len(objective.directions) > 1:
        raise ValueError("backend='ray' compares trials by one number. Choose backend='optuna' for several.")
    given = complete_options(
        options.study, record.folder, num_trials, str(args.eval_strategy) != "no", record.is_resumed
    )
    config = build_config(trainer.hp_space)
    home, space = args.output_dir, trainer.hp_space
    release(trainer)

    def note(trial: Any) -> None:
        outcome = read_outcome(trial)
        if outcome.step is not None and outcome.folder is not None:
            saved = find_saved(os.path.join(record.output_dir, outcome.folder), outcome.step)
            outcome = outcome.replace(checkpoint=saved)
        if record.find(outcome.number) is None:
            record.add(outcome)
            ended(outcome)

    # a process of Ray works in a folder of its own, and needs no space
    args.output_dir, trainer.hp_space = os.path.abspath(str(home)), None
    try:
        return run_tune(run_ray_trial, {"trainer": trainer, "objective": objective}, config, given, note)
    finally:
        args.output_dir, trainer.hp_space = home, space


def run_ray_trial(config: dict[str, Any], trainer: Any, objective: Objective) -> None:
    """In a process of Ray: run one trial.

    Args:
        config: Its values.
        trainer: The copy of the Trainer.
        objective: What trials are compared by.
    """
    tune = import_tune()
    trial_id = tune.get_context().get_trial_id()
    values = {name: value for name, value in config.items() if name != "wandb"}  # of Ray's own tracker
    name = f"run-{trial_id}" if trainer.hp_name is None else str(trainer.hp_name(config))

    def save(folder: str) -> bool:
        if trainer.control.should_save:
            trainer._tune_save_checkpoint(checkpoint_dir=folder)
        return bool(trainer.control.should_save)

    def is_last() -> bool:
        state = trainer.state
        return bool(trainer.control.should_training_stop or state.global_step >= state.max_steps)

    session = trainer._current_search = RaySession(objective, save, is_last)
    begun, start = Begun(find_number(trial_id), values, values, name), Start(trainer)
    checkpoint = tune.get_checkpoint()
    if checkpoint is None:
        outcome = run_one(start, session, begun, config, ())
    else:  # of this trial before its process was lost, or of a better one
        with checkpoint.as_directory() as folder:
            found = str(next(Path(folder).glob(f"{PREFIX_CHECKPOINT_DIR}-*")))
            outcome = run_one(start, session, begun, config, (), found)
    if outcome.state == FAILED:
        raise RuntimeError(outcome.error)
    session.close()


def best_run_of(analysis: Any, summary: SearchSummary) -> BestRun:
    """The best trial as users of Ray know it: by Ray's name, with the analysis.

    Args:
        analysis: What Ray returned.
        summary: All trials.
    """
    scope = os.environ.get("RAY_SCOPE")
    if scope:  # as Ray itself sees it
        mode = "max" if summary.directions[0] == MAXIMIZE else "min"
        best = analysis.get_best_trial(metric=OBJECTIVE, mode=mode, scope=scope)
        return BestRun(best.trial_id, best.last_result[OBJECTIVE], best.config, analysis)
    return summary.best_run()._replace(run_summary=analysis)
