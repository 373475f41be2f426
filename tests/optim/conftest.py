"""Small arguments, models and optimizers that the tests of `footplate.optim` share."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn


@pytest.fixture
def make_args() -> Callable[..., Any]:
    """Makes the few settings that optimizers and schedules read, with the defaults of the API."""

    def make(**changes: Any) -> SimpleNamespace:
        settings = {
            "optim": "adamw_torch",
            "optim_args": None,
            "optim_target_modules": None,
            "learning_rate": 1e-3,
            "weight_decay": 0.01,
            "adam_beta1": 0.9,
            "adam_beta2": 0.95,
            "adam_epsilon": 1e-7,
            "lr_scheduler_type": "linear",
            "lr_scheduler_kwargs": None,
            "warmup_steps": 0,
            "max_steps": -1,
            "gradient_accumulation_steps": 1,
            "parallel_mode": None,
            "param_groups": None,
            **changes,
        }
        args = SimpleNamespace(**settings)
        args.get_warmup_steps = lambda num_steps: (
            args.warmup_steps if args.warmup_steps >= 1 else math.ceil(num_steps * args.warmup_steps)
        )
        return args

    return make


@pytest.fixture
def make_optimizer() -> Callable[..., torch.optim.Optimizer]:
    """Makes an optimizer with one group for each rate."""

    def make(*rates: float) -> torch.optim.Optimizer:
        groups = [{"params": [nn.Parameter(torch.ones(2))], "lr": rate} for rate in rates]
        return torch.optim.SGD(groups, lr=rates[0])

    return make


@pytest.fixture
def make_model() -> Callable[[], nn.Module]:
    """Makes the same small model each time: embedding, two linear layers, a norm between them."""

    def make() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Embedding(50, 64), nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 8))

    return make


@pytest.fixture
def take_updates() -> Callable[..., list[torch.Tensor]]:
    """Takes updates, three unless told, with the same data each time and returns the weights."""

    def take(model: nn.Module, optimizer: torch.optim.Optimizer, num_updates: int = 3) -> list[torch.Tensor]:
        tokens = torch.arange(28).view(4, 7)
        for update in range(num_updates):
            model(tokens + update).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return [parameter.detach().clone() for parameter in model.parameters()]

    return take
