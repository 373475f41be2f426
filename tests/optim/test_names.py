from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import Trainer as OriginalTrainer
from transformers.training_args import OptimizerNames as OriginalOptimizerNames

from footplate.optim.adafactor import Adafactor
from footplate.optim.groups import build_optimizer, decay_parameter_names
from footplate.optim.names import BUILDERS, find_optimizer
from footplate.outputs import OptimizerNames

TORCH_ONLY = [
    ("adamw_torch", None),
    ("adamw_torch_fused", None),
    ("adafactor", None),
    ("sgd", None),
    ("sgd", "momentum=0.9, nesterov=true, weight_decay=0.1"),
    ("sgd", "momentum=0.9,dampening=0.2"),
    ("adagrad", None),
    ("adagrad", "lr_decay=0.1,eps=1e-5"),
    ("rmsprop", None),
    ("rmsprop", "momentum=0.5,alpha=0.9,centered=True,eps=1e-6"),
]


def originals_choice(make_args, name, options):
    args = make_args(optim=OriginalOptimizerNames(name), optim_args=options)
    return OriginalTrainer.get_optimizer_cls_and_kwargs(args, None)


def originals_groups(model, weight_decay):
    decaying = OriginalTrainer.get_decay_parameter_names(None, model)
    return [
        {"params": [p for n, p in model.named_parameters() if n in decaying], "weight_decay": weight_decay},
        {"params": [p for n, p in model.named_parameters() if n not in decaying], "weight_decay": 0.0},
    ]


@pytest.mark.parametrize(("name", "options"), TORCH_ONLY)
def test_three_updates_give_the_originals_weights(make_args, make_model, take_updates, name, options):
    args = make_args(optim=name, optim_args=options)
    ours, theirs = make_model(), make_model()
    optimizer_class, kwargs = find_optimizer(args, ours)
    optimizer = build_optimizer(optimizer_class, kwargs, ours, args, decay_parameter_names(ours))
    original_class, original_kwargs = originals_choice(make_args, name, options)
    original_optimizer = original_class(originals_groups(theirs, args.weight_decay), **original_kwargs)

    assert kwargs == original_kwargs
    assert optimizer_class is (Adafactor if name == "adafactor" else original_class)
    results = zip(take_updates(ours, optimizer), take_updates(theirs, original_optimizer), strict=True)
    assert all(torch.equal(mine, other) for mine, other in results)
    assert not torch.equal(ours[3].weight, make_model()[3].weight)


def test_every_name_has_a_builder():
    assert BUILDERS.keys() == set(OptimizerNames)
    assert {name.value for name in OriginalOptimizerNames} <= {name.value for name in OptimizerNames}


def test_the_name_may_be_text_or_an_enum_of_either_library(make_args):
    for name in ("sgd", OptimizerNames.SGD, OriginalOptimizerNames.SGD):
        assert find_optimizer(make_args(optim=name), None) == (torch.optim.SGD, {"lr": 1e-3})


def test_the_old_name_of_adamw_means_torchs(make_args):
    assert find_optimizer(make_args(optim="adamw_hf"), None) == find_optimizer(
        make_args(optim="adamw_torch"), None
    )


@pytest.mark.parametrize(("name", "cls"), [("nadam", torch.optim.NAdam), ("radam", torch.optim.RAdam)])
def test_relatives_of_adam_take_betas_and_options(make_args, make_model, take_updates, name, cls):
    args = make_args(optim=name, optim_args="decoupled_weight_decay=true")
    optimizer_class, kwargs = find_optimizer(args, None)
    assert optimizer_class is cls
    assert kwargs == {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-7, "decoupled_weight_decay": True}

    ours, plain = make_model(), make_model()
    optimizer = build_optimizer(optimizer_class, kwargs, ours, args, decay_parameter_names(ours))
    reference = cls(
        originals_groups(plain, 0.01), lr=1e-3, betas=(0.9, 0.95), eps=1e-7, decoupled_weight_decay=True
    )
    results = zip(take_updates(ours, optimizer), take_updates(plain, reference), strict=True)
    assert all(torch.equal(mine, other) for mine, other in results)


def test_an_unknown_name_lists_the_known_ones(make_args):
    with pytest.raises(ValueError, match=r"'adamv' is not a OptimizerNames.*'adamw_torch'"):
        find_optimizer(make_args(optim="adamv"), None)


def test_options_nobody_reads_are_named(make_args, caplog):
    find_optimizer(make_args(optim="adamw_torch", optim_args="momentum=0.9"), nn.Linear(1, 1))
    assert "optim_args has ['momentum'], which have no effect with optim='adamw_torch'" in caplog.text
