"""The accelerator is what the arguments describe."""

from __future__ import annotations

import pytest
import torch

import tiny
from footplate.distributed.accelerator import build_accelerator


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
