"""What lives as long as one evaluation, and what it hands on to those inside it."""

from __future__ import annotations

import torch

from footplate.trainer.evaluation import Evaluation
from footplate.training.meter import Records


def test_a_set_of_a_round_is_in_the_round_and_so_is_what_its_callbacks_ask_for():
    whole = Evaluation({"a": [1], "b": [2]}, None)
    part = Evaluation([1], "a", "eval_a", outer=whole)
    asked_by_callback = Evaluation([3], None, "other", outer=part)
    assert [entry.is_in_round for entry in (whole, part, asked_by_callback)] == [False, True, True]
    assert whole.holds_round


def test_the_evaluation_that_the_loop_asked_for_decides_once():
    asked = Evaluation(None, None)
    asked.is_scheduled = True
    first = Evaluation([1], None, outer=asked)
    assert (asked.is_scheduled, first.is_scheduled) == (False, True)
    assert not Evaluation([1], None, outer=asked).is_scheduled
    assert first.take_decision()
    asked_by_callback = Evaluation([1], None, outer=first)
    assert not asked_by_callback.take_decision()


def test_a_round_decides_and_its_sets_do_not():
    asked = Evaluation(None, None)
    asked.is_scheduled = True
    whole = Evaluation({"a": [1]}, None, outer=asked)
    part = Evaluation([1], "a", outer=whole)
    assert (whole.is_scheduled, part.is_scheduled) == (True, False)


def test_records_weigh_by_the_batch_under_way():
    evaluation = Evaluation([1], None)
    evaluation.records = Records()
    evaluation.batch_weight = 1.0
    evaluation.record("gap", 1.0)
    evaluation.batch_weight = 3.0
    evaluation.record("gap", torch.tensor(5.0))
    assert evaluation.records.drain() == {"gap": 4.0}
