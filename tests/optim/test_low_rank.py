from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from transformers.trainer_optimizer import _setup_low_rank_optimizer
from transformers.training_args import OptimizerNames as OriginalOptimizerNames

from footplate.optim.low_rank import (
    LayerWiseDummyOptimizer,
    LayerWiseDummyScheduler,
    build_layerwise,
    find_target_weights,
    low_rank_groups,
)
from footplate.optim.schedules import get_scheduler
from footplate.outputs import ParallelMode


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.Linear(4, 4)
        self.mlp = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        return self.norm(x + self.mlp(self.attention(x)))


def originals_targets(args, model):
    """Which parameters the original would project."""
    name = "galore_adamw"
    _, kwargs = _setup_low_rank_optimizer(
        args,
        model,
        OriginalOptimizerNames(name),
        {name: None, OriginalOptimizerNames(name): None},
        {"rank": 2},
        {},
    )
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [
        {**group, "params": [names[id(parameter)] for parameter in group["params"]]}
        for group in kwargs["params"]
    ]


@pytest.mark.parametrize(
    "wanted",
    [
        "all-linear",
        "all_linear",
        ["attention"],
        ["mlp"],
        ["attention", "mlp.2"],
        r".*mlp\.\d",
        [r"mlp\..*"],
        "attention",
    ],
)
def test_the_layers_chosen_are_the_originals(make_args, wanted):
    args, model = make_args(optim="galore_adamw", optim_target_modules=wanted), Block()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = [
        {**group, "params": [names[id(parameter)] for parameter in group["params"]]}
        for group in low_rank_groups(args, model, {"rank": 2})
    ]
    assert groups == originals_targets(args, model)
    assert groups[1]["params"]


def test_a_named_layer_that_is_not_linear_is_mentioned(make_args, caplog):
    find_target_weights(make_args(optim="galore_adamw", optim_target_modules=["attention", "norm"]), Block())
    assert "names 'norm', which is not a linear layer" in caplog.text


@pytest.mark.parametrize("wanted", [None, [], 3])
def test_target_modules_must_be_given(make_args, wanted):
    with pytest.raises(ValueError, match="'galore_adamw' needs optim_target_modules"):
        find_target_weights(make_args(optim="galore_adamw", optim_target_modules=wanted), Block())


def test_target_modules_that_match_nothing_are_refused(make_args):
    with pytest.raises(ValueError, match=r"optim_target_modules=\['qkv'\] matches no linear layer"):
        find_target_weights(make_args(optim="galore_adamw", optim_target_modules=["qkv"]), Block())


def test_the_model_must_be_given(make_args):
    with pytest.raises(ValueError, match="Pass the model"):
        find_target_weights(make_args(optim="galore_adamw", optim_target_modules="all-linear"), None)


def test_layer_by_layer_gives_what_one_optimizer_with_a_schedule_gives(make_args):
    torch.manual_seed(0)
    layered = Block()
    layered.norm.bias.requires_grad_(False)
    whole = copy.deepcopy(layered)
    args = make_args(optim="galore_adamw_layerwise", learning_rate=0.1)

    groups = [{"params": list(layered.parameters()), "weight_decay": 0.3}]
    optimizer_class, kwargs = build_layerwise(args, groups, torch.optim.AdamW, {"lr": 0.1})
    stand_in = optimizer_class(**kwargs)
    stand_in_schedule = get_scheduler("linear", stand_in, 2, 8)
    reference = torch.optim.AdamW(whole.parameters(), lr=0.1, weight_decay=0.3)
    schedule = get_scheduler("linear", reference, 2, 8)

    assert isinstance(stand_in, LayerWiseDummyOptimizer)
    assert isinstance(stand_in_schedule, LayerWiseDummyScheduler)
    for update in range(6):
        inputs = torch.randn(3, 4, generator=torch.Generator().manual_seed(update))
        for model, optimizer, rates in ((layered, stand_in, stand_in_schedule), (whole, reference, schedule)):
            model(inputs).pow(3).sum().backward()
            optimizer.step()
            rates.step()
            optimizer.zero_grad()
        assert stand_in_schedule.get_last_lr() == schedule.get_last_lr()
        assert all(parameter.grad is None for parameter in layered.parameters())
    for mine, other in zip(layered.parameters(), whole.parameters(), strict=True):
        assert torch.equal(mine, other)
    assert not torch.equal(whole.norm.weight, torch.ones(4))
    assert set(stand_in_schedule.state_dict()) == set(schedule.state_dict()) - {"lr_lambdas"}


def test_layer_by_layer_cannot_accumulate(make_args):
    args = make_args(optim="galore_adamw_layerwise", gradient_accumulation_steps=2)
    with pytest.raises(ValueError, match="gradient_accumulation_steps=1"):
        build_layerwise(args, [], torch.optim.SGD, {"lr": 0.1})


def test_layer_by_layer_is_for_one_process(make_args):
    args = make_args(optim="galore_adamw_layerwise", parallel_mode=ParallelMode.DISTRIBUTED)
    with pytest.raises(NotImplementedError, match="single process"):
        build_layerwise(args, [], torch.optim.SGD, {"lr": 0.1})
