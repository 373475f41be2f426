"""Which backend a search uses, and the options that each of them takes."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, NamedTuple

from footplate.outputs import HPSearchBackend
from footplate.search.optuna_study import OptunaStudy, import_optuna
from footplate.search.ranges import build_space
from footplate.search.record import TrialRecord
from footplate.search.spaces import default_hp_space_optuna
from footplate.search.studies import GridStudy, RandomStudy, Study

NOT_YET = {
    HPSearchBackend.RAY: "Use backend='optuna', or start each trial from a script of Ray Tune of your own.",
    HPSearchBackend.WANDB: "Use backend='optuna' with report_to='wandb': trials are runs of one group there.",
}
# of `optuna.create_study`; the search itself takes care of the others
STUDY_OPTIONS = ("sampler", "pruner", "storage", "study_name", "load_if_exists")


class Options(NamedTuple):
    """What a search takes besides the arguments that it names.

    Args:
        study: For `optuna.create_study`.
        timeout: Seconds after which no further trial begins.
        catch: Errors that end a trial only; any other ends the search.
        resumes: Whether trials that an earlier call made in the same folder count.
        load_best: Whether the model is the best one afterwards.
    """

    study: dict[str, Any]
    timeout: float | None = None
    catch: tuple[type[BaseException], ...] = (Exception,)
    resumes: bool = True
    load_best: bool = False


def choose_backend(name: str | HPSearchBackend | None) -> HPSearchBackend:
    """The backend of this name; by default Optuna where it is installed, else values by chance."""
    if name is None:
        return HPSearchBackend.OPTUNA if find_spec("optuna") else HPSearchBackend.RANDOM
    backend = HPSearchBackend(name)
    if backend in NOT_YET:
        raise NotImplementedError(
            f"backend={backend.value!r} is not in this version of footplate. {NOT_YET[backend]}"
        )
    if backend is HPSearchBackend.OPTUNA:
        import_optuna()
    return backend


def read_options(backend: HPSearchBackend, given: dict[str, Any]) -> Options:
    """The options among further arguments; refuses those that the backend does not take.

    Args:
        backend: The backend.
        given: The further arguments of `hyperparameter_search`.
    """
    left = dict(given)
    left.pop("gc_after_trial", None)  # memory is always freed
    num_jobs = left.pop("n_jobs", 1)
    if num_jobs not in (None, 1):
        raise NotImplementedError(
            f"n_jobs={num_jobs}: trials side by side are not in this version of footplate. Leave n_jobs "
            "unset, or give each process a part of the space and an output_dir of its own."
        )
    catch = left.pop("catch", (Exception,))
    own = {
        "timeout": left.pop("timeout", None),
        "catch": tuple(catch) if isinstance(catch, (tuple, list, set)) else (catch,),
        "resumes": bool(left.pop("resume", True)),
        "load_best": bool(left.pop("load_best", False)),
    }
    names = STUDY_OPTIONS if backend is HPSearchBackend.OPTUNA else ()
    study = {name: left.pop(name) for name in names if name in left}
    if left:
        known = ["timeout", "catch", "resume", "load_best", "gc_after_trial", *names]
        raise TypeError(
            f"hyperparameter_search with backend={backend.value!r} takes no {', '.join(map(repr, left))}. It "
            f"takes {', '.join(known)}."
        )
    return Options(study, **own)


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
    return OptunaStudy(space, directions, record, seed, options.study)
