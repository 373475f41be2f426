"""Mixed precision on the CPU, by a real accelerator."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

import tiny
from footplate.distributed.accelerated import AcceleratedStrategy
from footplate.distributed.accelerator import build_accelerator


@pytest.fixture(scope="module")
def accelerator(tmp_path_factory):
    return build_accelerator(tiny.arguments(tmp_path_factory.mktemp("bf16"), bf16=True))


@pytest.fixture
def strategy(accelerator):
    return AcceleratedStrategy(accelerator)


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


def test_an_optimizer_that_steps_in_backward_is_told_its_rate(accelerator):
    received = []

    class StepsInBackward(torch.optim.SGD):
        def optimized_backward(self, loss, learning_rate):
            received.append(learning_rate)
            loss.backward()

    strategy = AcceleratedStrategy(accelerator, steps_in_backward=True)
    weight = nn.Parameter(torch.ones(2))
    optimizer = strategy.prepare_optimizer(StepsInBackward([weight], lr=0.5))
    assert isinstance(optimizer.optimizer, StepsInBackward)
    assert received == []
