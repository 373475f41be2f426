"""What lives as long as one train(), and an update that is undone."""

from __future__ import annotations

import random

import torch

import tiny
from footplate import rng
from footplate.state import RunIdentity
from footplate.trainer.run import Run, Stage
from footplate.training.plan import Position, TrainingPlan


def build_run(tmp_path, shared=None, identity=None, **settings):
    return Run(
        tiny.arguments(tmp_path, **settings), torch.device("cpu"), {} if shared is None else shared, identity
    )


def test_a_new_run_names_itself_and_one_that_goes_on_keeps_the_name(tmp_path):
    shared = {}
    run = build_run(tmp_path, shared)
    assert shared["run_id"] == run.identity.run_id
    shared["metric_prefixes"] = ("eval", "test", "ood")
    again = build_run(tmp_path, shared, run.identity)
    assert shared["run_id"] == again.identity.run_id
    assert shared["metric_prefixes"] == ("eval", "test", "ood")
    assert build_run(tmp_path, shared).identity.run_id != run.identity.run_id
    assert shared["metric_prefixes"] == ("eval", "test")


def test_a_run_has_begun_when_it_is_planned(tmp_path):
    run = build_run(tmp_path)
    assert not run.has_begun
    run.begin(TrainingPlan(max_steps=3, batches_per_epoch=3), [1, 2, 3], torch.device("cpu"))
    assert run.has_begun


def test_the_position_is_that_of_the_plan_until_updates_are_made(tmp_path):
    planned = {"cut": (5, 8), "shift": (5, 0, 1)}
    start = Position(2, 16, is_begun=True, pending=("should_save",), batches_done=2, **planned)
    run = build_run(tmp_path)
    sizes = {"batches_per_epoch": 5, "updates_per_epoch": 5, "micro_batch_size": 8}
    plan = TrainingPlan(max_steps=9, start=start, first_batch=2, shift=(0, 1), **sizes)
    run.begin(plan, [], torch.device("cpu"))
    assert run.position == start
    run.feed.advance([torch.zeros(8)])
    run.undone = []
    assert run.position == Position(2, 24, is_begun=True, batches_done=3, **planned)


def test_an_update_is_undone_with_its_gradients_sums_and_random_numbers(tmp_path):
    run = build_run(tmp_path)
    weight = torch.nn.Parameter(torch.ones(2))
    run.parameters = [weight]
    with rng.scoped(seed=3):
        run.begin_update(0, 1, may_undo=True)
        expected = (random.random(), float(torch.rand(())))
        weight.grad = torch.ones(2)
        run.meter.add(torch.tensor(5.0))
        run.undo_update()
        assert (random.random(), float(torch.rand(()))) == expected
    assert weight.grad is None
    assert float(run.meter.loss) == 0.0


def test_an_update_that_is_given_up_goes_back_to_before_its_batches_were_read(tmp_path):
    class Loader:
        place = 4

        def state_dict(self):
            return {"place": self.place}

    run = build_run(tmp_path, identity=RunIdentity())
    run.begin(TrainingPlan(max_steps=3), Loader(), torch.device("cpu"))
    with rng.scoped(seed=3):
        run.begin_reading(0)
        expected = float(torch.rand(()))  # as a random collator draws
        run.feed.loader.place = 6
        run.begin_update(0, 1, may_undo=True)
        torch.rand(3)  # as dropout draws
        run.give_up_update()
        assert float(torch.rand(())) == expected
    assert run.feed.state() == {"place": 4}
    assert run.stage is Stage.BETWEEN


def test_between_two_updates_there_is_nothing_to_give_up(tmp_path):
    run = build_run(tmp_path)
    states = rng.capture()
    run.give_up_update()
    assert torch.equal(rng.capture()["cpu"], states["cpu"])
