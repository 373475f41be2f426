"""Trials from Ray Tune: its search algorithms and schedulers, its processes, its storage."""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from footplate.search.objective import Objective
from footplate.search.outcomes import COMPLETE, FAILED, PRUNED, Outcome
from footplate.search.ranges import check_entry
from footplate.search.session import Session
from footplate.search.spaces import default_hp_space_ray
from footplate.search.studies import check_values

FOLDER_NAME = "ray"
# what Ray is told besides the metrics
OBJECTIVE, BEST, BEST_STEP = "objective", "best_objective", "best_step"
FOLDER, IS_WHOLE = "trial_folder", "trial_is_whole"


def import_tune() -> Any:
    """The package; without it, an error that says what to do."""
    try:
        return import_module("ray.tune")
    except ImportError as error:
        raise ImportError(
            "backend='ray' needs a package: pip install 'footplate[ray]'. backend='random' and 'grid' need "
            "none, and n_jobs=... runs their trials side by side."
        ) from error


class RaySession(Session):
    """One search, as a process of Ray sees it: Ray is told of every evaluation, and ends trials itself.

    Args:
        objective: What trials are compared by.
        save: Writes a checkpoint into a folder, if one is due; False if none is.
        is_last: Whether training ends after this update.
    """

    def __init__(
        self, objective: Objective, save: Callable[[str], bool], is_last: Callable[[], bool]
    ) -> None:
        super().__init__(objective, None)
        self._save, self._is_last = save, is_last
        self._told: dict[str, Any] = {}

    def note(self, metrics: dict[str, float], step: int) -> float | list[float]:
        """Take the metrics of an evaluation and tell Ray, which may end this process here."""
        tune = import_tune()
        value = super().note(metrics, step)
        best = self.objective.choose(self.evaluated, None)
        assert best is not None
        about = {BEST: best.values[0], BEST_STEP: best.step, FOLDER: self.name, IS_WHOLE: self._is_last()}
        told = self._told = {**metrics, OBJECTIVE: value, **about}
        with tempfile.TemporaryDirectory() as folder:
            is_saved = self._save(folder)
            tune.report(told, checkpoint=tune.Checkpoint.from_directory(folder) if is_saved else None)
        return value

    def close(self) -> None:
        """Tell Ray that the trial came to its end, unless its last evaluation did: Ray ends others early."""
        if not self._told.get(IS_WHOLE):
            import_tune().report({**self._told, IS_WHOLE: True})


def build_config(hp_space: Any) -> dict[str, Any]:
    """The space in the words of Ray Tune.

    Args:
        hp_space: A function that gives such a dictionary, our own dictionary, or None for the default.
    """
    if isinstance(hp_space, Mapping):
        return {str(name): to_domain(check_entry(str(name), entry)) for name, entry in hp_space.items()}
    return check_values((hp_space or default_hp_space_ray)(None))


def to_domain(entry: Any) -> Any:
    """One entry of a dictionary as Ray Tune has it: a list, a range, or a value that is always taken."""
    tune = import_tune()
    if isinstance(entry, list):
        return tune.choice(entry)
    if not isinstance(entry, dict):
        return entry
    low, high, step, log = entry["low"], entry["high"], entry.get("step"), bool(entry.get("log", False))
    is_whole = all(isinstance(number, int) for number in (low, high, 1 if step is None else step))
    if is_whole:
        high += 1  # left out there
    kind = ("q" if step is not None else "") + ("log" if log else "") + ("randint" if is_whole else "uniform")
    return getattr(tune, kind)(low, high, *(() if step is None else (step,)))


def run_tune(
    function: Callable[..., Any],
    values: dict[str, Any],
    config: dict[str, Any],
    options: dict[str, Any],
    ended: Callable[[Any], None],
) -> Any:
    """Let Ray Tune make the trials; returns its `ExperimentAnalysis`.

    Args:
        function: Runs a trial: it is given its values, and what else it needs by name.
        values: What else it needs; put into Ray's store once.
        config: The space in the words of Ray Tune.
        options: Arguments of `ray.tune.run`.
        ended: Called with each trial of Ray that has ended, perhaps twice.
    """
    tune = import_tune()

    def complete(self: Any, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        ended(trial)

    note = type("Note", (tune.Callback,), {"on_trial_complete": complete})()
    callbacks = [*(options.pop("callbacks", None) or []), note]
    trainable = tune.with_parameters(function, **values)
    analysis = tune.run(trainable, config=config, callbacks=callbacks, **options)
    for trial in analysis.trials:  # those that failed, with an error that Ray has only now
        ended(trial)
    return analysis


def complete_options(
    given: dict[str, Any], folder: str, num_trials: int | None, has_evaluations: bool, is_resumed: bool
) -> dict[str, Any]:
    """The arguments of `ray.tune.run` with those that nobody gave; refuses names that it does not have.

    Args:
        given: What the user gave.
        folder: Where Ray keeps what it knows.
        num_trials: How many trials there are.
        has_evaluations: Whether there are evaluations in the middle of training.
        is_resumed: Whether an earlier call made trials in the same folder.
    """
    tune = import_tune()
    known = set(inspect.signature(tune.run).parameters) - {"run_or_experiment", "config"}
    unknown = sorted(set(given) - known)
    if unknown:
        raise TypeError(
            f"hyperparameter_search with backend='ray' takes no {', '.join(unknown)}. It takes timeout, "
            "resume, load_best, n_jobs, and the arguments of ray.tune.run."
        )
    scheduler = given.get("scheduler")
    if scheduler is not None and not has_evaluations and type(scheduler).__name__ != "FIFOScheduler":
        raise RuntimeError(
            f"scheduler={type(scheduler).__name__} ends trials early, and there is no evaluation before "
            "their end. Set eval_strategy='steps' or 'epoch' in TrainingArguments."
        )
    return {
        "num_samples": 20 if num_trials is None else num_trials,
        "resources_per_trial": default_resources(),
        "progress_reporter": tune.CLIReporter(metric_columns=[OBJECTIVE]),
        "raise_on_failed_trial": False,
        "storage_path": os.path.join(os.path.abspath(folder), FOLDER_NAME),
        "name": "footplate",
        "resume": "AUTO" if is_resumed else None,
        **given,
    }


def default_resources() -> dict[str, int]:
    """One core for each trial, and one device where there are any."""
    import torch

    return {"cpu": 1, "gpu": 1} if torch.cuda.is_available() else {"cpu": 1}


def find_number(trial_id: str) -> int:
    """Which trial of the search it is: Ray's names end with it."""
    return int(trial_id.rpartition("_")[2], 16) if "_" in trial_id else 0


def read_outcome(trial: Any) -> Outcome:
    """How a trial of Ray ended.

    Args:
        trial: Ray's own object for it.
    """
    last = trial.last_result or {}
    is_error = trial.status == "ERROR"
    state = FAILED if is_error else COMPLETE if last.get(IS_WHOLE) else PRUNED
    error = str(trial.get_error() or "unknown").strip().splitlines()[-1] if is_error else None
    has_value = last.get(BEST) is not None
    return Outcome(
        number=find_number(trial.trial_id),
        state=state,
        params=dict(trial.config),
        values=[last[BEST]] if has_value else None,
        step=last[BEST_STEP] if has_value else None,
        folder=last.get(FOLDER),
        seconds=round(float(last.get("time_total_s", 0.0)), 3),
        error=error,
        run_id=str(trial.trial_id),
    )
