"""Trials of our own give values as Optuna's do."""

from __future__ import annotations

from random import Random

import pytest

from footplate.search.trial import Domain, Trial, fixed_trial


def drawn(number: int = 0, seed: int = 0) -> Trial:
    generator = Random(seed)
    return Trial(number, lambda domain: domain.draw(generator))


def test_values_stay_inside_their_ranges_and_reach_the_ends():
    trials = [drawn(seed=seed) for seed in range(300)]
    floats = [trial.suggest_float("a", 1e-5, 1e-1, log=True) for trial in trials]
    whole = [trial.suggest_int("b", 1, 5) for trial in trials]
    logs = [trial.suggest_int("c", 1, 100, log=True) for trial in trials]
    steps = [trial.suggest_float("d", 0.0, 1.0, step=0.25) for trial in trials]
    assert all(1e-5 <= value <= 1e-1 for value in floats)
    assert 0.3 < sum(value < 1e-3 for value in floats) / 300 < 0.7  # half of the powers of ten
    assert set(whole) == {1, 2, 3, 4, 5}
    assert min(logs) >= 1
    assert max(logs) <= 100
    assert sorted(logs)[150] < 25
    assert set(steps) == {0.0, 0.25, 0.5, 0.75, 1.0}
    assert all(type(value) is int for value in whole + logs)


def test_a_name_that_is_asked_for_twice_keeps_its_value():
    trial = drawn()
    first = trial.suggest_categorical("a", ["x", "y", "z"])
    assert [trial.suggest_categorical("a", ["x", "y", "z"]) for _ in range(20)] == [first] * 20
    assert trial.params == {"a": first}


def test_a_fixed_trial_gives_what_it_was_given():
    trial = fixed_trial(7, {"a": 0.5})
    assert (trial.number, trial.params, trial.suggest_float("a", 0, 1)) == (7, {"a": 0.5}, 0.5)


@pytest.mark.parametrize(
    ("domain", "words"),
    [
        ({"options": ()}, "no values"),
        ({"low": 2.0, "high": 1.0}, "smaller one first"),
        ({"low": 0.0, "high": 1.0, "log": True}, "Begin above 0"),
        ({"low": 0.0, "high": 1.0, "step": 0.0}, "step above 0"),
    ],
)
def test_a_range_that_cannot_be_is_refused(domain, words):
    with pytest.raises(ValueError, match=words):
        Domain("rate", **domain)
