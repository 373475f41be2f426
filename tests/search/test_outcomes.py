"""Which trials are the best, with one objective and with several."""

from __future__ import annotations

import math
import time
from random import Random

import pytest

from footplate.search.outcomes import Outcome, find_best, is_better


def complete(*rows):
    return [Outcome(number, "complete", values=list(row)) for number, row in enumerate(rows)]


@pytest.mark.parametrize(("direction", "best"), [("minimize", 2), ("maximize", 1)])
def test_the_best_of_one_objective_is_complete_and_a_number(direction, best):
    outcomes = [
        *complete([math.nan], [5.0], [1.0]),
        Outcome(3, "pruned", values=[-9.0]),
        Outcome(4, "failed", values=[99.0]),
        Outcome(5, "complete"),
    ]
    assert [outcome.number for outcome in find_best(outcomes, [direction])] == [best]


def is_surpassed(one, outcomes, directions):
    """By the definition: another one is better by an objective, and worse by none."""
    for other in outcomes:
        rows = list(zip(other.values, one.values, directions, strict=True))
        if any(is_better(*row) for row in rows) and not any(is_better(b, a, way) for a, b, way in rows):
            return True
    return False


@pytest.mark.parametrize("directions", [["minimize", "maximize"], ["maximize", "minimize", "minimize"]])
def test_with_several_objectives_the_best_are_those_that_no_other_surpasses(directions):
    generator = Random(0)
    values = [0.0, 1.0, 2.0, 3.0, math.inf, -math.inf, math.nan]
    for _ in range(50):
        outcomes = complete(*([generator.choice(values) for _ in directions] for _ in range(12)))
        expected = [one for one in outcomes if not is_surpassed(one, outcomes, directions)]
        assert find_best(outcomes, directions) == expected


def test_a_thousand_trials_of_which_none_surpasses_another_are_compared_quickly():
    outcomes = complete(*([float(n), float(-n)] for n in range(1000)))
    start = time.process_time()
    assert find_best(outcomes, ["minimize", "minimize"]) == outcomes
    assert time.process_time() - start < 1.0
