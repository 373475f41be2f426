"""What lives as long as one evaluation, and what it hands on to those inside it."""

from __future__ import annotations

import torch

from footplate.trainer.evaluation import Evaluation
from footplate.training.meter import Records


def ask(**marks):
    """What the training loop opens before it calls evaluate()."""
    asked = Evaluation(None, None)
    asked.is_asking = True
    vars(asked).update(marks)
    return asked


def test_a_set_of_a_round_is_in_the_round_and_what_callbacks_ask_for_is_not():
    whole = Evaluation({"a": [1], "b": [2]}, None)
    whole.is_asking = True
    part = Evaluation([1], "a", "eval_a", outer=whole)
    in_a_set, after_the_sets = (Evaluation([3], None, "eval", outer=outer) for outer in (part, whole))
    found = [entry.is_in_round for entry in (whole, part, in_a_set, after_the_sets)]
    assert found == [False, True, False, False]


def test_the_evaluation_that_the_loop_asked_for_is_scheduled_and_those_of_callbacks_are_not():
    asked = ask(is_scheduled=True)
    first, second = Evaluation([1], None, outer=asked), Evaluation([1], None, outer=asked)
    assert (first.is_scheduled, second.is_scheduled) == (True, False)
    assert not Evaluation([1], None, outer=first).is_scheduled


def test_each_set_of_a_scheduled_round_is_scheduled():
    whole = Evaluation({"a": [1]}, None, outer=ask(is_scheduled=True))
    whole.is_asking = True
    assert Evaluation([1], "a", outer=whole).is_scheduled


def test_whatever_happens_inside_an_evaluation_of_the_loop_is_made_again_with_it():
    asked = ask(is_repeatable=True)
    first = Evaluation([1], None, outer=asked)
    assert first.is_repeatable
    assert Evaluation([1], None, outer=first).is_repeatable
    assert not Evaluation([1], None).is_repeatable


def test_records_weigh_by_the_batch_under_way():
    evaluation = Evaluation([1], None)
    evaluation.records = Records()
    evaluation.batch_weight = 1.0
    evaluation.record("gap", 1.0)
    evaluation.batch_weight = 3.0
    evaluation.record("gap", torch.tensor(5.0))
    assert evaluation.records.drain() == {"gap": 4.0}
