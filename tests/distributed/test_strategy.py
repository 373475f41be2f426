"""Clipping is torch's to the last bit, and the plain strategy changes nothing else."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

import tiny
from footplate.distributed.accelerated import AcceleratedStrategy
from footplate.distributed.accelerator import build_accelerator
from footplate.distributed.strategy import Strategy, build_strategy

SHAPES = [(3, 5), (7,), (), (1, 1, 4), (0,)]
KINDS = {
    "float32": [torch.float32] * 5,
    "float64": [torch.float64] * 5,
    "bfloat16": [torch.bfloat16] * 5,
    "float16": [torch.float16] * 5,
    "mixed": [torch.float32, torch.bfloat16, torch.float64, torch.float32, torch.bfloat16],
    "one": [torch.float32],
}


def parameters_of(dtypes, scale=3.0, without=()):
    """Parameters with the same gradients every time; some have none."""
    generator = torch.Generator().manual_seed(0)
    parameters = []
    for k, (shape, dtype) in enumerate(zip(SHAPES, dtypes, strict=False)):
        gradient = (scale * torch.randn(shape, generator=generator)).to(dtype)
        parameters.append(nn.Parameter(torch.zeros(shape, dtype=dtype)))
        parameters[-1].grad = None if k in without else gradient
    return parameters


def gradients(parameters):
    return [parameter.grad for parameter in parameters]


def assert_same_bits(found, expected):
    assert (found is None) == (expected is None)
    if found is not None:
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert torch.equal(found, expected) or torch.equal(found.isnan(), expected.isnan())


def assert_clips_like_torch(make, max_norm):
    ours, theirs = make(), make()
    norm, expected = Strategy().clip_grad_norm(ours, max_norm), clip_grad_norm_(theirs, max_norm)
    assert_same_bits(norm, expected)
    for found, gradient in zip(gradients(ours), gradients(theirs), strict=True):
        assert_same_bits(found, gradient)


@pytest.mark.parametrize("max_norm", [1.0, 0.3, 1e6, 1])
@pytest.mark.parametrize("without", [(), (1,), (0, 2)], ids=["all", "some", "fewer"])
@pytest.mark.parametrize("kind", KINDS)
def test_norm_and_clipped_gradients_are_torchs_to_the_last_bit(kind, without, max_norm):
    assert_clips_like_torch(lambda: parameters_of(KINDS[kind], without=without), max_norm)


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "mixed"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_norm_that_is_not_finite_spoils_as_much_as_with_torch(kind, value):
    def make():
        parameters = parameters_of(KINDS[kind])
        parameters[1].grad[2] = value
        return parameters

    assert not math.isfinite(Strategy().clip_grad_norm(make(), 1.0))
    assert_clips_like_torch(make, 1.0)


@pytest.mark.parametrize("kind", ["float32", "mixed"])
def test_gradients_of_zero_stay_zero(kind):
    assert_clips_like_torch(lambda: parameters_of(KINDS[kind], scale=0.0), 1.0)


def test_without_any_gradient_the_norm_is_zero_as_with_torch():
    assert_clips_like_torch(lambda: parameters_of(KINDS["float32"], without=range(5)), 1.0)
    assert_clips_like_torch(list, 1.0)


def test_parameters_may_come_from_a_generator():
    parameters = parameters_of(KINDS["float32"])
    expected = clip_grad_norm_(parameters_of(KINDS["float32"]), 1.0)
    assert torch.equal(Strategy().clip_grad_norm(iter(parameters), 1.0), expected)


@pytest.mark.parametrize("num_sparse", [1, 2], ids=["beside dense ones", "alone"])
def test_sparse_gradients_are_refused_as_by_torch(num_sparse):
    def make():
        tables = [nn.Embedding(4, 3, sparse=k < num_sparse) for k in range(2)]
        for table in tables:
            table(torch.tensor([1, 3])).sum().backward()
        return [table.weight for table in tables]

    for clip in (Strategy().clip_grad_norm, clip_grad_norm_):
        with pytest.raises((NotImplementedError, RuntimeError), match="Sparse"):
            clip(make(), 1.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_norm", [0, 0.0, -1.0])
def test_a_limit_of_zero_measures_and_changes_nothing(kind, max_norm):
    parameters = parameters_of(KINDS[kind])
    before = [gradient.clone() for gradient in gradients(parameters)]
    norm = Strategy().clip_grad_norm(parameters, max_norm)
    assert torch.equal(norm, clip_grad_norm_(parameters_of(KINDS[kind]), math.inf))
    for found, gradient in zip(gradients(parameters), before, strict=True):
        assert_same_bits(found, gradient)


@pytest.mark.parametrize("kind", ["float32", "mixed"])
def test_difference_measuring_alone_does_not_spread_a_nan(kind):
    def make():
        parameters = parameters_of(KINDS[kind])
        parameters[1].grad[2] = math.nan
        return parameters

    ours, theirs = make(), make()
    Strategy().clip_grad_norm(ours, 0.0)
    clip_grad_norm_(theirs, math.inf)  # how the original measures
    assert [gradient.isnan().sum().item() for gradient in gradients(ours)] == [0, 1, 0, 0, 0]
    assert [gradient.isnan().sum().item() for gradient in gradients(theirs)] == [15, 7, 1, 4, 0]


def test_clipping_leaves_no_graph():
    weight = nn.Parameter(torch.ones(3))
    weight.grad = torch.autograd.grad((weight**2).sum(), weight, create_graph=True)[0]
    assert weight.grad.requires_grad
    assert not Strategy().clip_grad_norm([weight], 0.0).requires_grad


def test_the_plain_strategy_hands_everything_through():
    strategy, model = Strategy(), tiny.Regression()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert strategy.prepare_model(model) is model
    assert strategy.prepare_optimizer(optimizer) is optimizer
    assert strategy.step_was_skipped is False
    with strategy.accumulate(model, sync=False):
        strategy.backward(model(torch.ones(2), torch.ones(2))["loss"])
        strategy.backward(model(torch.ones(2), torch.ones(2))["loss"], retain_graph=True)
    twice = model.slope.grad.clone()
    model.zero_grad()
    strategy.backward(model(torch.ones(2), torch.ones(2))["loss"])
    assert torch.equal(twice, 2 * model.slope.grad)


def never():
    raise AssertionError("full precision needs no accelerator")


def test_the_strategy_is_chosen_by_precision_and_optimizer(tmp_path):
    assert type(build_strategy(tiny.arguments(tmp_path), never)) is Strategy
    for settings, steps_in_backward in [({"bf16": True}, False), ({"optim": "lomo"}, True)]:
        args = tiny.arguments(tmp_path, **settings)
        strategy = build_strategy(args, functools.partial(build_accelerator, args))
        assert isinstance(strategy, AcceleratedStrategy)
        assert strategy.steps_in_backward is steps_in_backward
        assert strategy.accelerator.mixed_precision == args.mixed_precision


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"auto_find_batch_size": True}, "auto_find_batch_size=True does not work with fsdp.*Lower"),
        ({"optim": "adafactor"}, "optim='adafactor' needs whole weights.*Choose"),
    ],
)
def test_what_needs_whole_weights_is_refused_with_fsdp(settings, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        build_strategy(tiny.arguments(tmp_path, fsdp=True, **settings), never)
