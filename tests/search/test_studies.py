"""Trials by chance and from a grid."""

from __future__ import annotations

import pytest

from footplate.search.outcomes import Outcome
from footplate.search.ranges import build_space
from footplate.search.record import TrialRecord
from footplate.search.studies import GridStudy, RandomStudy
from footplate.search.trial import Trial


def run_through(study, record, count):
    """The values of the next trials."""
    found = []
    for _ in range(count):
        asked = study.ask()
        if asked is None:
            break
        found.append(asked.values)
        record.add(Outcome(asked.trial.number, "complete", asked.trial.params, [0.0]))
    return found


def conditional(trial: Trial) -> dict[str, object]:
    """A second value only where the first one asks for it."""
    values = {"optim": trial.suggest_categorical("optim", ["sgd", "adamw_torch"])}
    if values["optim"] == "adamw_torch":
        values["adam_beta1"] = trial.suggest_float("adam_beta1", 0.8, 0.9, step=0.1)
    return {**values, "seed": trial.suggest_int("seed", 1, 2)}


def test_a_grid_has_every_combination_once_also_where_values_depend_on_others(tmp_path):
    record = TrialRecord(str(tmp_path), {})
    found = run_through(GridStudy(conditional, record), record, 99)
    assert found == [
        {"optim": "sgd", "seed": 1},
        {"optim": "sgd", "seed": 2},
        {"optim": "adamw_torch", "adam_beta1": 0.8, "seed": 1},
        {"optim": "adamw_torch", "adam_beta1": 0.8, "seed": 2},
        {"optim": "adamw_torch", "adam_beta1": pytest.approx(0.9), "seed": 1},
        {"optim": "adamw_torch", "adam_beta1": pytest.approx(0.9), "seed": 2},
    ]


@pytest.mark.parametrize("kind", ["grid", "random"])
def test_a_search_that_was_cut_short_goes_on_with_the_same_trials(tmp_path, kind):
    def study(record):
        return GridStudy(conditional, record) if kind == "grid" else RandomStudy(conditional, 5, record)

    whole = TrialRecord(str(tmp_path / "whole"), {})
    expected = run_through(study(whole), whole, 6)
    assert len(expected) == 6
    first = TrialRecord(str(tmp_path / "cut"), {})
    found = run_through(study(first), first, 2)
    second = TrialRecord(str(tmp_path / "cut"), {})
    assert found + run_through(study(second), second, 4) == expected
    assert [outcome.number for outcome in second.outcomes] == list(range(6))


def test_trials_by_chance_differ_from_trial_to_trial_and_from_seed_to_seed(tmp_path):
    space = build_space({"learning_rate": {"low": 0.0, "high": 1.0}})
    rates = []
    for seed in (1, 2):
        record = TrialRecord(str(tmp_path / str(seed)), {})
        found = run_through(RandomStudy(space, seed, record), record, 5)
        rates += [values["learning_rate"] for values in found]
    assert len(set(rates)) == 10


def test_a_grid_of_any_number_is_refused(tmp_path):
    record = TrialRecord(str(tmp_path), {})
    study = GridStudy(build_space({"learning_rate": {"low": 0.0, "high": 1.0}}), record)
    with pytest.raises(ValueError, match="a grid needs single values"):
        study.ask()


def test_a_space_that_returns_no_values_is_refused(tmp_path):
    study = RandomStudy(lambda trial: None, 0, TrialRecord(str(tmp_path), {}))
    with pytest.raises(ValueError, match="hp_space returned None"):
        study.ask()
