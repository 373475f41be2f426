"""What trials are compared by."""

from __future__ import annotations

import math

import pytest

from footplate.search.objective import Evaluated, choose_objective
from footplate.search.outcomes import Outcome, find_best

METRICS = {"eval_loss": 2.0, "eval_f1": 0.5, "eval_em": 0.25, "eval_runtime": 9.0, "epoch": 1.0}


@pytest.mark.parametrize(
    ("given", "value", "direction"),
    [
        ({}, 2.0, "minimize"),
        ({"metric": "f1", "greater_is_better": True}, 0.5, "maximize"),
        ({"metric": "eval_f1"}, 0.5, "maximize"),
        ({"metric": "loss", "greater_is_better": False}, 2.0, "minimize"),
        ({"direction": "maximize"}, 0.75, "maximize"),  # as the original: the sum of the metrics
        ({"compute": lambda metrics: metrics["eval_em"]}, 0.25, "minimize"),
        ({"compute": lambda metrics: metrics["eval_em"], "direction": "maximize"}, 0.25, "maximize"),
    ],
)
def test_the_objective_is_what_was_given_else_the_metric_for_the_best_model(given, value, direction):
    options = {"compute": None, "direction": None, "metric": None, "greater_is_better": None, **given}
    objective = choose_objective(**options)
    assert objective.read(dict(METRICS)) == [value]
    assert objective.directions == [direction]
    assert objective.text.startswith(direction)


def test_wrong_objectives_say_what_to_change():
    with pytest.raises(ValueError, match="'minimize' or 'maximize'"):
        choose_objective(None, "up", None, None)
    with pytest.raises(ValueError, match=r"not among what evaluation gives: \['epoch', 'eval_em'"):
        choose_objective(None, None, "f2", None).read(dict(METRICS))
    with pytest.raises(ValueError, match=r"gives 2 number\(s\)"):
        choose_objective(lambda metrics: (1.0, 2.0), "minimize", None, None).read({})
    with pytest.raises(ValueError, match="no number"):
        choose_objective(lambda metrics: None, "minimize", None, None).read({})


def test_the_best_evaluation_counts_and_not_the_last():
    evaluated = [Evaluated([math.nan], 1), Evaluated([0.5], 2), Evaluated([0.9], 3), Evaluated([0.7], 4)]
    assert choose_objective(None, "maximize", "f1", None).choose(evaluated, None).step == 3
    assert choose_objective(None, "minimize", "f1", None).choose(evaluated, None).step == 2
    assert choose_objective(None, "minimize", "f1", None).choose([], None) is None


def test_with_several_objectives_the_run_says_which_evaluation_is_its_best():
    both = choose_objective(lambda metrics: (1, 2), ["minimize", "maximize"], None, None)
    evaluated = [Evaluated([1.0, 2.0], 1), Evaluated([3.0, 1.0], 2)]
    assert both.choose(evaluated, 1).step == 1
    assert both.choose(evaluated, None).step == 2


def test_the_best_trial_is_a_complete_one():
    trials = [
        Outcome(0, "complete", values=[2.0]),
        Outcome(1, "pruned", values=[0.0]),
        Outcome(2, "complete", values=[1.0]),
        Outcome(3, "complete", values=[1.0]),
        Outcome(4, "failed"),
    ]
    assert [one.number for one in find_best(trials, ["minimize"])] == [2]
    assert [one.number for one in find_best(trials, ["maximize"])] == [0]
    assert find_best(trials[1:2], ["minimize"]) == []


def test_with_several_objectives_all_that_none_surpasses_are_best():
    points = [(1.0, 1.0), (2.0, 2.0), (0.5, 0.1), (1.5, 0.5)]
    trials = [Outcome(number, "complete", values=list(point)) for number, point in enumerate(points)]
    best = find_best(trials, ["minimize", "maximize"])
    assert [one.number for one in best] == [0, 1, 2]
