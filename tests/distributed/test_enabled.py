"""Whether DeepSpeed or FSDP is on, asked of those who know."""

from __future__ import annotations

import torch
import transformers.integrations.deepspeed as original

from footplate.distributed import enabled


def test_deepspeed_is_what_the_original_was_told():
    assert not enabled.is_deepspeed_zero3_enabled()
    assert enabled.deepspeed_config() is None

    class Config:
        config = {"zero_optimization": {"stage": 3}}

        def is_zero3(self):
            return True

    held = Config()
    original.set_hf_deepspeed_config(held)
    try:
        assert enabled.is_deepspeed_zero3_enabled()
        assert enabled.deepspeed_config() is Config.config
    finally:
        original.unset_hf_deepspeed_config()
    assert not enabled.is_deepspeed_zero3_enabled()


def test_fsdp_is_on_only_between_processes(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_CPU_RAM_EFFICIENT_LOADING", "1")
    assert not enabled.is_fsdp_enabled()
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    assert enabled.is_fsdp_enabled()
    monkeypatch.setenv("FSDP_CPU_RAM_EFFICIENT_LOADING", "0")
    assert not enabled.is_fsdp_enabled()


def test_a_plain_module_is_not_managed_by_fsdp():
    module = torch.nn.Linear(1, 1)
    assert not enabled.is_fsdp_managed_module(module)
    module._is_fsdp_managed_module = True
    assert enabled.is_fsdp_managed_module(module)
