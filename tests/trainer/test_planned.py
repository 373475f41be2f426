"""`trainer.plan()`: with the Trainer's own loss, optimizer and data, and without a trace."""

from __future__ import annotations

import torch

import footplate
import tiny
from footplate.trainer.planned import count_eval_rows, describe_optimizer


def losses_of(trainer):
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def test_a_run_after_a_plan_is_the_same_run(tmp_path):
    settings = {"max_steps": 4, "logging_steps": 1, "per_device_train_batch_size": 4}
    found = []
    for is_planned in (False, True):
        trainer = tiny.build_trainer(tmp_path, tiny.gpt(), tiny.causal_data(16), **settings)
        if is_planned:
            assert trainer.plan(world_size=2).memory.is_measured
        found.append(losses_of(trainer))
    assert found[0] == found[1]


def test_the_own_loss_is_the_one_that_is_tried(tmp_path):
    class Doubled(footplate.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False):
            both = [model(**inputs) for _ in range(2)]
            return both[0]["loss"] + both[1]["loss"]

    args = tiny.arguments(tmp_path, per_device_train_batch_size=8)
    plain, doubled = (
        cls(model=tiny.gpt(), args=args, train_dataset=tiny.causal_data(16)).plan()
        for cls in (footplate.Trainer, Doubled)
    )
    assert doubled.memory.activations > 1.5 * plain.memory.activations


def test_the_optimizer_is_the_one_that_training_uses(tmp_path):
    model, data = tiny.Regression(), tiny.regression_data(8)
    named = tiny.build_trainer(tmp_path, model, data, optim="sgd")
    assert describe_optimizer(named)[0] is torch.optim.SGD
    assert named.plan().memory.optimizer == 0
    own = torch.optim.AdamW(model.parameters(), lr=0.1, amsgrad=True)
    given = tiny.build_trainer(tmp_path, model, data, options={"optimizers": (own, None)})
    assert describe_optimizer(given)[1]["amsgrad"]
    assert given.plan().memory.optimizer == 2 * (3 * 4 + 4)  # two scalars: three numbers each, and the step


def test_rows_of_all_evaluation_sets_are_counted(tmp_path):
    data = tiny.regression_data(8)
    sets = {"a": data, "b": data[:3]}
    trainer = tiny.build_trainer(tmp_path, tiny.Regression(), data, sets, max_eval_samples=5)
    assert count_eval_rows(trainer) == 8
    assert count_eval_rows(tiny.build_trainer(tmp_path, tiny.Regression(), data)) == 0


def test_a_stream_is_planned_by_its_updates(tmp_path):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield from tiny.regression_data(8)

    planned = tiny.build_trainer(tmp_path, tiny.Regression(), Stream(), max_steps=7).plan()
    assert planned.duration.updates == 7
    assert planned.schedule.end == 0
