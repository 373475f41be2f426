"""Mixed precision on the CPU, by a real accelerator."""

from __future__ import annotations

import copy

import pytest
import torch
from accelerate import Accelerator
from torch import nn
from torch.nn.utils import clip_grad_norm_

import tiny
from footplate.distributed.accelerated import AcceleratedStrategy
from footplate.distributed.accelerator import build_accelerator


@pytest.fixture
def strategy(tmp_path):
    return AcceleratedStrategy(build_accelerator(tiny.arguments(tmp_path, bf16=True)))


class Spy(nn.Module):
    """A linear layer that remembers the dtype it computed in."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        self.seen = self.layer(x)
        return {"logits": self.seen}


def test_forward_computes_in_bfloat16_and_answers_in_float32(strategy):
    model = strategy.prepare_model(Spy())
    answer = model(torch.ones(3, 4))["logits"]
    assert model.seen.dtype == torch.bfloat16
    assert answer.dtype == torch.float32
    assert model.layer.weight.dtype == torch.float32
    assert torch.equal(answer, model.seen.float())


def test_the_prepared_model_is_the_model_itself_and_is_prepared_once(strategy):
    model = Spy()
    prepared = strategy.prepare_model(model)
    forward = prepared.forward
    assert prepared is model
    assert strategy.prepare_model(prepared) is model
    assert model.forward is forward


def test_the_numbers_are_those_of_autocast(strategy):
    model = Spy()
    plain = copy.deepcopy(model)
    prepared = strategy.prepare_model(model)
    inputs = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    loss = prepared(inputs)["logits"].pow(2).mean()
    strategy.backward(loss)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        answer = plain(inputs)["logits"]
    expected = answer.float().pow(2).mean()
    expected.backward()
    assert torch.equal(loss, expected)
    assert torch.equal(model.layer.weight.grad, plain.layer.weight.grad)
    assert torch.equal(
        strategy.clip_grad_norm(model.parameters(), 0.1), clip_grad_norm_(plain.parameters(), 0.1)
    )
    assert torch.equal(model.layer.weight.grad, plain.layer.weight.grad)


def test_bfloat16_needs_no_scaler_and_leaves_the_optimizer_alone(strategy):
    optimizer = torch.optim.SGD(Spy().parameters(), lr=0.1)
    assert strategy.prepare_optimizer(optimizer) is optimizer
    assert strategy.is_scaled is False
    assert strategy.step_was_skipped is False


def test_weights_keep_their_names(strategy):
    expected = list(Spy().state_dict())
    assert list(strategy.prepare_model(Spy()).state_dict()) == expected


def test_backward_takes_options(strategy):
    weight = nn.Parameter(torch.ones(2))
    loss = weight.sum()
    strategy.backward(loss, retain_graph=True)
    strategy.backward(loss)
    assert weight.grad.tolist() == [2.0, 2.0]


class RemembersRates:
    """Stands in for an accelerator whose optimizer (LOMO) steps in backward, and which needs a GPU."""

    mixed_precision = "no"

    def __init__(self):
        self.rates = []

    def prepare_optimizer(self, optimizer):
        return ("prepared", optimizer)

    def backward(self, loss, learning_rate):
        self.rates.append(learning_rate)


def test_an_optimizer_that_steps_in_backward_is_prepared_and_told_its_rate():
    accelerator = RemembersRates()
    strategy = AcceleratedStrategy(accelerator, steps_in_backward=True)
    assert strategy.prepare_optimizer("optimizer") == ("prepared", "optimizer")
    strategy.backward(torch.ones(()), learning_rate=0.5)
    assert accelerator.rates == [0.5]


class HalfPrecision(Accelerator):
    """A real accelerator with a real scaler, which Accelerate itself allows on a GPU only."""

    mixed_precision = "fp16"

    def __init__(self):
        super().__init__(cpu=True)
        self.scaler, self.native_amp = torch.amp.GradScaler("cpu", init_scale=1024.0), True


@pytest.fixture
def scaled():
    weight = nn.Parameter(torch.tensor([3.0, 4.0]))
    strategy = AcceleratedStrategy(HalfPrecision())
    return strategy, weight, strategy.prepare_optimizer(torch.optim.SGD([weight], lr=1.0))


def test_a_scaler_scales_backward_and_is_taken_out_before_clipping(scaled):
    strategy, weight, optimizer = scaled
    strategy.backward((weight**2).sum() / 2)
    assert weight.grad.tolist() == [3.0 * 1024, 4.0 * 1024]
    assert strategy.clip_grad_norm([weight], 1.0).item() == 5.0
    assert weight.grad.norm().item() == pytest.approx(1.0, abs=1e-5)
    optimizer.step()
    assert not strategy.step_was_skipped
    assert weight.tolist() == pytest.approx([2.4, 3.2], abs=1e-5)


def test_an_overflow_leaves_the_weights_alone_and_is_told(scaled):
    strategy, weight, optimizer = scaled
    strategy.backward((weight * torch.tensor([1e38, 1.0])).sum())
    assert not strategy.clip_grad_norm([weight], 1.0).isfinite()
    optimizer.step()
    assert strategy.step_was_skipped
    assert weight.tolist() == [3.0, 4.0]
