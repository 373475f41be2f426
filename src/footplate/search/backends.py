"""Which backend a search uses, and the options that each of them takes."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any, NamedTuple

from footplate.outputs import HPSearchBackend
from footplate.search.optuna_study import OptunaStudy, import_optuna
from footplate.search.ranges import build_space
from footplate.search.ray_tune import import_tune
from footplate.search.record import TrialRecord
from footplate.search.spaces import default_hp_space_optuna
from footplate.search.studies import GridStudy, RandomStudy, Study
from footplate.search.wandb_client import import_wandb

# of `optuna.create_study`, and of a sweep; the search itself takes care of the others
STUDY_OPTIONS: dict[HPSearchBackend, tuple[str, ...]] = {
    HPSearchBackend.OPTUNA: ("sampler", "pruner", "storage", "study_name", "load_if_exists"),
    HPSearchBackend.WANDB: ("sweep_id", "project", "entity", "name", "metric"),
}


class Options(NamedTuple):
    """What a search takes besides the arguments that it names.

    Args:
        study: For `optuna.create_study`, `ray.tune.run`, or a sweep of W&B.
        timeout: Seconds after which no further trial begins.
        catch: Errors that end a trial only; any other ends the search.
        resumes: Whether trials that an earlier call made in the same folder count.
        load_best: Whether the model is the best one afterwards.
        num_jobs: How many trials run at the same time.
    """

    study: dict[str, Any]
    timeout: float | None = None
    catch: tuple[type[BaseException], ...] = (Exception,)
    resumes: bool = True
    load_best: bool = False
    num_jobs: int = 1


def choose_backend(name: str | HPSearchBackend | None) -> HPSearchBackend:
    """The backend of this name; by default Optuna where it is installed, else values by chance."""
    if name is None:
        return HPSearchBackend.OPTUNA if find_spec("optuna") else HPSearchBackend.RANDOM
    backend = HPSearchBackend(name)
    if backend is HPSearchBackend.OPTUNA:
        import_optuna()
    if backend is HPSearchBackend.RAY:
        import_tune()
    if backend is HPSearchBackend.WANDB:
        import_wandb()
    return backend


def read_options(backend: HPSearchBackend, given: dict[str, Any]) -> Options:
    """The options among further arguments; refuses those that the backend does not take.

    Args:
        backend: The backend.
        given: The further arguments of `hyperparameter_search`.
    """
    left = dict(given)
    left.pop("gc_after_trial", None)  # memory is always freed
    catch = left.pop("catch", (Exception,))
    own = {
        "timeout": left.pop("timeout", None),
        "catch": tuple(catch) if isinstance(catch, (tuple, list, set)) else (catch,),
        "resumes": bool(left.pop("resume", True)),
        "load_best": bool(left.pop("load_best", False)),
        "num_jobs": read_num_jobs(left.pop("n_jobs", 1)),
    }
    if backend is HPSearchBackend.RAY:
        own["num_jobs"], jobs = 1, own["num_jobs"]
        limits = {"max_concurrent_trials": jobs if jobs > 1 else None, "time_budget_s": own["timeout"]}
        return Options({**{name: limit for name, limit in limits.items() if limit}, **left}, **own)
    if backend is HPSearchBackend.WANDB and own["num_jobs"] > 1:
        raise ValueError(
            f"n_jobs={own['num_jobs']}: an agent of W&B makes one trial after another. Start the script "
            "several times with the same sweep_id, each with an output_dir of its own."
        )
    names = STUDY_OPTIONS.get(backend, ())
    study = {name: left.pop(name) for name in names if name in left}
    if left:
        known = ["timeout", "catch", "resume", "load_best", "n_jobs", "gc_after_trial", *names]
        raise TypeError(
            f"hyperparameter_search with backend={backend.value!r} takes no {', '.join(map(repr, left))}. It "
            f"takes {', '.join(known)}."
        )
    return Options(study, **own)


def read_num_jobs(given: int | None) -> int:
    """How many trials run at the same time; -1 means one for each core, as Optuna has it."""
    if given == -1:
        return os.cpu_count() or 1
    if given is not None and (not isinstance(given, int) or given < 1):
        raise ValueError(f"n_jobs={given!r}: give how many trials run at the same time, or -1 for all cores.")
    return given or 1


def build_study(
    backend: HPSearchBackend,
    hp_space: Any,
    directions: list[str],
    record: TrialRecord,
    seed: int,
    options: Options,
) -> Study:
    """Where the trials of a search come from.

    Args:
        backend: The backend.
        hp_space: A function of a trial or a dictionary; None for the default space.
        directions: "minimize" or "maximize" for each objective.
        record: The trials that have ended.
        seed: Where values by chance come from.
        options: What else was given.
    """
    if hp_space is None and backend is HPSearchBackend.GRID:
        raise ValueError(
            "backend='grid' has no default space. Pass hp_space={'learning_rate': [1e-5, 1e-4]}."
        )
    space = build_space(default_hp_space_optuna if hp_space is None else hp_space)
    if backend is HPSearchBackend.GRID:
        return GridStudy(space, record)
    if backend is HPSearchBackend.RANDOM:
        return RandomStudy(space, seed, record)
    return OptunaStudy(space, directions, record, seed, options.study, options.num_jobs > 1)
