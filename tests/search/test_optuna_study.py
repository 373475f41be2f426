"""Optuna's studies go on after a kill as if there had been none."""

from __future__ import annotations

import optuna
import pytest

from footplate.search.optuna_study import OptunaStudy
from footplate.search.outcomes import Outcome
from footplate.search.record import TrialRecord


def space(trial):
    kind = trial.suggest_categorical("kind", ["a", "b"])
    rate = trial.suggest_float("rate", 1e-4, 1.0, log=True)
    return {
        "kind": kind,
        "rate": rate,
        **({"depth": trial.suggest_int("depth", 1, 9)} if kind == "b" else {}),
    }


class Killed(Exception):
    """Stands for a kill: nothing is told any more."""


def go_on(folder, count, kill_at=None, directions=("minimize",), **options):
    """Make trials as a search does until there are enough; a kill strikes between two evaluations."""
    record = TrialRecord(str(folder), {})
    study = OptunaStudy(space, list(directions), record, 3, options)
    while len(record.outcomes) < count:
        asked = study.ask()
        number, values = asked.trial.number, asked.values
        assert number == len(record.outcomes)
        state, base = "complete", abs(values["rate"] - 0.1) + 0.1 * values.get("depth", 3)
        for step in (1, 2, 3):
            if study.report(number, [base + 1 / step, base][: len(directions)], step):
                state = "pruned"
                break
            if number == kill_at and step == 2:
                raise Killed
        state = "failed" if number % 5 == 4 else state
        outcome = Outcome(number, state, asked.trial.params, [base, values["rate"]][: len(directions)])
        record.add(outcome)
        if number == kill_at and step == 1:
            raise Killed
        study.tell(outcome)
    return [(one.number, one.state, one.params, one.values) for one in record.outcomes], study


SAMPLERS = {
    "default": dict,
    "multivariate": lambda: {"sampler": optuna.samplers.TPESampler(seed=1, multivariate=True, group=True)},
    "random": lambda: {"sampler": optuna.samplers.RandomSampler(seed=1)},
    "startup": lambda: {"sampler": optuna.samplers.TPESampler(seed=1, n_startup_trials=4)},
}


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("kill_at", [0, 3, 14, 17])
@pytest.mark.parametrize("options", SAMPLERS.values(), ids=SAMPLERS)
def test_the_trials_are_the_same_as_without_the_kill(tmp_path, options, kill_at):
    pruner = optuna.pruners.MedianPruner(n_startup_trials=3)
    expected, whole = go_on(tmp_path / "whole", 20, pruner=pruner, **options())
    states = [state for _, state, _, _ in expected]
    assert {"complete", "pruned", "failed"} == set(states)
    with pytest.raises(Killed):
        go_on(tmp_path / "cut", 20, kill_at, pruner=pruner, **options())
    found, resumed = go_on(tmp_path / "cut", 20, pruner=pruner, **options())
    assert found == expected
    both = [study.study.get_trials() for study in (whole, resumed)]
    told = [[(one.state, one.values, one.intermediate_values) for one in trials] for trials in both]
    assert told[0] == told[1]


def test_a_line_of_the_journal_that_a_kill_has_cut_does_no_harm(tmp_path):
    expected, _ = go_on(tmp_path / "whole", 8)
    go_on(tmp_path / "cut", 5)
    path = tmp_path / "cut" / "search" / "optuna.log"
    path.write_bytes(path.read_bytes()[:-10])  # the end of trial 4 is lost; the record has it
    found, _ = go_on(tmp_path / "cut", 8)
    assert found == expected


def test_two_objectives_are_told_and_never_pruned(tmp_path):
    found, study = go_on(tmp_path, 10, directions=("minimize", "maximize"))
    assert {state for _, state, _, _ in found} == {"complete", "failed"}
    assert len(study.study.directions) == 2
    assert study.study.best_trials


def test_a_storage_of_the_users_own_is_used_as_it_is(tmp_path):
    storage = optuna.storages.InMemoryStorage()
    go_on(tmp_path, 3, storage=storage, study_name="mine")
    assert len(optuna.load_study(study_name="mine", storage=storage).trials) == 3
    assert not (tmp_path / "search" / "optuna.log").exists()
