"""Each `set_*` changes what the original's changes, and returns the settings."""

from __future__ import annotations

import inspect

import pytest
import transformers

from footplate.arguments import TrainingArguments

CALLS = [
    ("set_training", {}),
    (
        "set_training",
        {"learning_rate": 1e-3, "batch_size": 3, "weight_decay": 0.1, "num_epochs": 2, "max_steps": 9},
    ),
    ("set_training", {"gradient_accumulation_steps": 2, "seed": 1, "gradient_checkpointing": True}),
    ("set_training", {"activation_checkpointing": True}),
    ("set_evaluate", {"delay": 0}),
    ("set_evaluate", {"strategy": "steps", "steps": 7, "batch_size": 3, "accumulation_steps": 2, "delay": 2}),
    ("set_evaluate", {"strategy": "epoch", "loss_only": True, "delay": 0}),
    ("set_testing", {"batch_size": 3, "loss_only": True}),
    ("set_save", {"strategy": "steps", "steps": 7, "total_limit": 2, "on_each_node": True}),
    ("set_save", {"strategy": "best"}),
    ("set_logging", {"strategy": "epoch", "report_to": ["tensorboard"], "level": "info", "first_step": True}),
    (
        "set_logging",
        {"report_to": [], "nan_inf_filter": True, "on_each_node": True, "replica_level": "error"},
    ),
    ("set_push_to_hub", {"model_id": "me/net", "strategy": "end", "token": "t", "private_repo": True}),
    ("set_push_to_hub", {"model_id": "me/net", "always_push": True, "revision": "b"}),
    ("set_optimizer", {"name": "sgd", "learning_rate": 0.1, "weight_decay": 0.1, "args": "momentum=0.9"}),
    ("set_optimizer", {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-6}),
    ("set_lr_scheduler", {"name": "cosine", "num_epochs": 2.5, "max_steps": 10, "warmup_steps": 0.05}),
    ("set_dataloader", {"train_batch_size": 3, "eval_batch_size": 4, "drop_last": True, "num_workers": 2}),
    (
        "set_dataloader",
        {"pin_memory": False, "persistent_workers": True, "prefetch_factor": 3, "sampler_seed": 5},
    ),
    ("set_dataloader", {"multiprocessing_context": "spawn", "in_order": False, "auto_find_batch_size": True}),
    ("set_dataloader", {"ignore_data_skip": True}),
]


@pytest.mark.parametrize(("name", "values"), CALLS, ids=[f"{name}-{list(values)}" for name, values in CALLS])
def test_setter_changes_what_the_original_changes(name, values):
    args = TrainingArguments("runs")
    assert getattr(args, name)(**values) is args
    theirs = getattr(transformers.TrainingArguments("runs"), name)(**values).to_dict()
    ours = {key: value for key, value in args.to_dict().items() if key in theirs}
    theirs["accelerator_config"]["use_configured_state"] = False
    assert ours == theirs


@pytest.mark.parametrize("name", sorted({name for name, _ in CALLS}))
def test_parameters_and_defaults_are_those_of_the_original(name):
    ours = inspect.signature(getattr(TrainingArguments, name)).parameters
    theirs = inspect.signature(getattr(transformers.TrainingArguments, name)).parameters
    kept = [key for key in ours if key != "warmup_ratio"]  # of 4.x
    assert kept == list(theirs)
    assert {key: ours[key].default for key in kept} == {key: value.default for key, value in theirs.items()}


def test_evaluating_without_a_delay_starts_at_once():
    assert TrainingArguments("runs").set_evaluate("epoch").eval_delay == 0


def test_reporting_to_nobody_is_an_empty_list():
    assert TrainingArguments("runs").set_logging().report_to == []


def test_the_warmup_ratio_of_4x_is_understood():
    assert TrainingArguments("runs").set_lr_scheduler(warmup_ratio=0.2).warmup_steps == 0.2
    assert TrainingArguments("runs").set_lr_scheduler(warmup_ratio=0.2, warmup_steps=7).warmup_steps == 7


@pytest.mark.parametrize("name", ["set_evaluate", "set_save", "set_logging"])
def test_steps_that_would_never_come_raise_and_change_nothing(name):
    args = TrainingArguments("runs")
    with pytest.raises(ValueError, match=f"{name}.*steps=0.*positive number"):
        getattr(args, name)(strategy="steps", steps=0)
    assert args == TrainingArguments("runs")
