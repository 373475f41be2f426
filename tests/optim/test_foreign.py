"""Each test checks what is true here: the real optimizer where its package is installed, else the error."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
from torch import nn
from transformers import Trainer as OriginalTrainer
from transformers.training_args import OptimizerNames as OriginalOptimizerNames

from footplate.optim.groups import build_optimizer, decay_parameter_names
from footplate.optim.names import find_optimizer
from footplate.optim.schedules import get_scheduler

# optim, the module it needs, what the error tells one to install
FOREIGN = [
    ("adamw_torch_xla", "torch_xla.amp.syncfree", "torch_xla"),
    ("adamw_torch_npu_fused", "torch_npu.optim", "torch_npu"),
    ("adamw_apex_fused", "apex.optimizers", "NVIDIA/apex"),
    ("adamw_anyprecision", "torchdistx.optimizers", "pytorch/torchdistx"),
    ("adamw_torch_4bit", "torchao.optim", "torchao"),
    ("adamw_torch_8bit", "torchao.optim", "torchao"),
    ("adamw_bnb_8bit", "bitsandbytes.optim", "bitsandbytes"),
    ("adamw_8bit", "bitsandbytes.optim", "bitsandbytes"),
    ("paged_adamw_32bit", "bitsandbytes.optim", "bitsandbytes"),
    ("paged_adamw_8bit", "bitsandbytes.optim", "bitsandbytes"),
    ("ademamix", "bitsandbytes.optim", "bitsandbytes"),
    ("ademamix_8bit", "bitsandbytes.optim", "bitsandbytes"),
    ("paged_ademamix_32bit", "bitsandbytes.optim", "bitsandbytes"),
    ("paged_ademamix_8bit", "bitsandbytes.optim", "bitsandbytes"),
    ("lion_32bit", "bitsandbytes.optim", "bitsandbytes"),
    ("lion_8bit", "bitsandbytes.optim", "bitsandbytes"),
    ("paged_lion_32bit", "bitsandbytes.optim", "bitsandbytes"),
    ("paged_lion_8bit", "bitsandbytes.optim", "bitsandbytes"),
    ("rmsprop_bnb", "bitsandbytes.optim", "bitsandbytes"),
    ("rmsprop_bnb_8bit", "bitsandbytes.optim", "bitsandbytes"),
    ("rmsprop_bnb_32bit", "bitsandbytes.optim", "bitsandbytes"),
    ("galore_adamw", "galore_torch", "galore-torch"),
    ("galore_adamw_8bit", "galore_torch", "galore-torch"),
    ("galore_adafactor", "galore_torch", "galore-torch"),
    ("galore_adamw_layerwise", "galore_torch", "galore-torch"),
    ("galore_adamw_8bit_layerwise", "galore_torch", "galore-torch"),
    ("galore_adafactor_layerwise", "galore_torch", "galore-torch"),
    ("apollo_adamw", "apollo_torch", "apollo-torch"),
    ("apollo_adamw_layerwise", "apollo_torch", "apollo-torch"),
    ("lomo", "lomo_optim", "lomo-optim"),
    ("adalomo", "lomo_optim", "lomo-optim"),
    ("grokadamw", "grokadamw", "grokadamw"),
    ("schedule_free_adamw", "schedulefree", "schedulefree"),
    ("schedule_free_radam", "schedulefree", "schedulefree"),
    ("schedule_free_sgd", "schedulefree", "schedulefree"),
    ("stable_adamw", "optimi", "torch-optimi"),
]
NEEDS_CUDA = {"galore_adamw_8bit", "galore_adamw_8bit_layerwise", "lomo", "adalomo"}
REPLACES_GROUPS = ("params", "model", "optimizer_dict")


def is_installed(module: str) -> bool:
    try:
        import_module(module)
    except ImportError:
        return False
    return True


def plain(kwargs):
    return {key: value for key, value in kwargs.items() if key not in REPLACES_GROUPS}


@pytest.mark.parametrize(("name", "module", "package"), FOREIGN)
def test_the_optimizer_trains_or_its_package_is_named(
    make_args, make_model, take_updates, name, module, package
):
    args, model = make_args(optim=name, optim_target_modules="all-linear"), make_model()
    if not is_installed(module):
        with pytest.raises(ImportError, match=f"optim='{name}' needs .*pip install .*{package}"):
            find_optimizer(args, model)
        return

    optimizer_class, kwargs = find_optimizer(args, model)
    if name in {known.value for known in OriginalOptimizerNames} - {"galore_adafactor_layerwise"}:
        originals_args = make_args(optim=OriginalOptimizerNames(name), optim_target_modules="all-linear")
        original_class, original_kwargs = OriginalTrainer.get_optimizer_cls_and_kwargs(
            originals_args, make_model()
        )
        assert optimizer_class.__name__ == original_class.__name__
        assert plain(kwargs) == plain(original_kwargs)
    if name in NEEDS_CUDA and not torch.cuda.is_available():
        return
    optimizer = build_optimizer(optimizer_class, kwargs, model, args, decay_parameter_names(model))
    if hasattr(optimizer, "train"):
        optimizer.train()
    get_scheduler("linear", optimizer, 0, 10)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    after = take_updates(model, optimizer, num_updates=8)  # rectified Adam rests for the first five
    assert all(torch.isfinite(value).all() for value in after)
    assert not any(torch.equal(old, new) for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("name", "module", "options", "expected"),
    [
        (
            "ademamix",
            "bitsandbytes",
            "beta3=0.5,alpha=3,t_alpha=9",
            {"betas": (0.9, 0.95, 0.5), "alpha": 3.0, "t_alpha": 9},
        ),
        ("rmsprop_bnb", "bitsandbytes", "alpha=0.9,eps=1e-6", {"alpha": 0.9, "eps": 1e-6, "optim_bits": 32}),
        ("grokadamw", "grokadamw", "lamb=3,gamma=0.2", {"lamb": 3.0, "gamma": 0.2, "alpha_init": 0.98}),
        (
            "stable_adamw",
            "optimi",
            "kahan_sum=false,max_lr=0.1",
            {"kahan_sum": False, "max_lr": 0.1, "decouple_lr": False},
        ),
        ("schedule_free_sgd", "schedulefree", "r=0.5", {"r": 0.5, "warmup_steps": 7, "weight_decay": 0.01}),
        (
            "adamw_torch_8bit",
            "torchao.optim",
            "block_size=128",
            {"block_size": 128, "bf16_stochastic_round": False},
        ),
        ("adamw_anyprecision", "torchdistx", "momentum_dtype=bfloat16", {"momentum_dtype": torch.bfloat16}),
    ],
)
def test_options_reach_the_optimizer(make_args, name, module, options, expected):
    args = make_args(optim=name, optim_args=options, warmup_steps=7)
    if is_installed(module):
        _, kwargs = find_optimizer(args, None)
        assert {key: kwargs[key] for key in expected} == expected
    else:
        with pytest.raises(ImportError, match=f"optim='{name}'"):
            find_optimizer(args, None)


def test_a_warmup_as_a_share_needs_the_length_of_the_run(make_args):
    args = make_args(optim="schedule_free_adamw", warmup_steps=0.1)
    if not is_installed("schedulefree"):
        with pytest.raises(ImportError, match="schedulefree"):
            find_optimizer(args, None)
        return
    with pytest.raises(ValueError, match=r"warmup_steps=0\.1 is a share of the run.*max_steps"):
        find_optimizer(args, None)
    args.max_steps = 50
    assert find_optimizer(args, None)[1]["warmup_steps"] == 5


def test_eight_bits_leave_embeddings_exact(make_args, take_updates):
    args, model = make_args(optim="adamw_bnb_8bit"), nn.Sequential(nn.Embedding(100, 64), nn.Linear(64, 128))
    if not is_installed("bitsandbytes"):
        with pytest.raises(ImportError, match="bitsandbytes"):
            find_optimizer(args, model)
        return
    optimizer = build_optimizer(*find_optimizer(args, model), model, args, decay_parameter_names(model))
    take_updates(model, optimizer)
    assert optimizer.state[model[0].weight]["state1"].dtype == torch.float32
    assert optimizer.state[model[1].weight]["state1"].dtype == torch.uint8
