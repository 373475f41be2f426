"""The accelerator is what the arguments describe."""

from __future__ import annotations

import pytest
import torch
import transformers
from accelerate import Accelerator
from accelerate.state import AcceleratorState

import tiny
from footplate.distributed.accelerator import build_accelerator, plan_accelerator, plan_loading


@pytest.mark.parametrize(("settings", "precision"), [({}, "no"), ({"bf16": True}, "bf16")])
def test_device_and_precision_come_from_the_arguments(settings, precision, tmp_path):
    accelerator = build_accelerator(tiny.arguments(tmp_path, **settings))
    assert accelerator.device == torch.device("cpu")
    assert accelerator.mixed_precision == precision
    assert accelerator.num_processes == 1


def test_loader_settings_reach_it(tmp_path):
    config = {"split_batches": True, "dispatch_batches": False, "even_batches": False, "non_blocking": True}
    accelerator = build_accelerator(tiny.arguments(tmp_path, accelerator_config=config, data_seed=7))
    found = accelerator.dataloader_config
    assert {name: getattr(found, name) for name in config} == config
    assert found.use_seedable_sampler is True
    assert found.data_seed == 7


def test_accumulation_is_left_to_the_loop(tmp_path):
    accelerator = build_accelerator(tiny.arguments(tmp_path, gradient_accumulation_steps=4))
    assert accelerator.gradient_accumulation_steps == 1
    weight = torch.nn.Parameter(torch.ones(1))
    accelerator.backward(weight.sum())
    assert weight.grad.item() == 1.0


def test_settings_of_accumulation_reach_it_but_for_the_steps(tmp_path):
    config = {"gradient_accumulation_kwargs": {"num_steps": 4, "sync_each_batch": True}}
    accelerator = build_accelerator(tiny.arguments(tmp_path, accelerator_config=config))
    assert accelerator.gradient_accumulation_steps == 1
    assert accelerator.gradient_state.plugin_kwargs["sync_each_batch"] is True
    assert config["gradient_accumulation_kwargs"]["num_steps"] == 4  # the user's own dictionary


def test_a_copy_that_does_not_wait_wants_pinned_memory(tmp_path, caplog):
    for pinned in (True, False):
        args = tiny.arguments(tmp_path, accelerator_config={"non_blocking": True})
        args.dataloader_pin_memory = pinned
        plan_loading(args)
        assert bool(caplog.records) is not pinned


@pytest.mark.parametrize(
    ("settings", "make", "expected"),
    [
        ({}, tiny.Regression, True),
        ({}, tiny.bert_classifier, True),
        ({"gradient_checkpointing": True}, tiny.bert_classifier, False),
        ({"gradient_checkpointing": True}, tiny.Regression, True),
        ({"ddp_find_unused_parameters": False, "ddp_bucket_cap_mb": 5}, tiny.Regression, False),
    ],
)
def test_the_options_equal_the_original(settings, make, expected, tmp_path):
    model = make()
    ours = plan_accelerator(tiny.arguments(tmp_path, **settings), model, extra=1)
    trainer = object.__new__(transformers.Trainer)
    trainer.args, trainer.model = tiny.arguments(tmp_path, transformers, **settings), model
    theirs = trainer._build_accelerator_args(extra=1)
    assert ours["kwargs_handlers"] == theirs["kwargs_handlers"]
    assert ours["kwargs_handlers"][0].find_unused_parameters is expected
    for name in ("mixed_precision", "deepspeed_plugin", "extra"):
        assert ours[name] == theirs[name]


def test_a_configured_state_of_another_precision_is_not_replaced(tmp_path):
    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        first = Accelerator(cpu=True, mixed_precision="bf16")
        config = {"use_configured_state": True}
        same = build_accelerator(tiny.arguments(tmp_path, bf16=True, accelerator_config=config))
        assert same.state.__dict__ is first.state.__dict__
        with pytest.raises(ValueError, match="already been initialized"):
            build_accelerator(tiny.arguments(tmp_path, accelerator_config=config))
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
