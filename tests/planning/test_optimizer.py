"""What optimizers keep, by their own classes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from footplate.optim.adafactor import Adafactor
from footplate.planning.optimizer import measure_optimizer

MATRIX, VECTOR = (200, 300), (300,)


def state_of(optimizer_class, options, shape=MATRIX, dtype=torch.float32):
    """Planned bytes of the state of one parameter, and those of the real state."""
    parameter = nn.Parameter(torch.zeros(shape, dtype=dtype))
    cost = measure_optimizer(optimizer_class, options, [parameter])
    optimizer = optimizer_class([parameter], **options)
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    values = optimizer.state[parameter].values()
    real = sum(value.nbytes for value in values if isinstance(value, torch.Tensor))
    return cost.state_bytes(shape, dtype), real


@pytest.mark.parametrize("shape", [MATRIX, VECTOR, (4, 5, 6), (2, 3, 4, 5), ()])
@pytest.mark.parametrize(
    ("optimizer_class", "options"),
    [
        (torch.optim.AdamW, {"fused": True}),
        (torch.optim.AdamW, {"amsgrad": True}),
        (torch.optim.SGD, {"lr": 0.1}),
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        (torch.optim.Adagrad, {}),
        (Adafactor, {"scale_parameter": False, "relative_step": False, "lr": 1e-3}),
    ],
)
def test_the_state_has_the_bytes_of_the_real_one(optimizer_class, options, shape):
    planned, real = state_of(optimizer_class, options, shape)
    assert planned == real


def test_a_state_follows_the_dtype_of_its_parameter():
    planned, real = state_of(torch.optim.AdamW, {}, dtype=torch.bfloat16)
    assert planned == real == 2 * 2 * 200 * 300 + 4


def test_parameters_of_many_dimensions_are_counted_too():
    planned, real = state_of(torch.optim.AdamW, {}, 6 * (2,))
    assert planned == real


def test_adam_of_torch_keeps_eight_bytes_and_sgd_none():
    assert state_of(torch.optim.AdamW, {})[0] == 8 * 200 * 300 + 4  # and the number of its step
    assert state_of(torch.optim.SGD, {"lr": 0.1})[0] == 0


def test_on_an_accelerator_the_usual_adam_makes_temporaries_of_all_parameters():
    parameters = [nn.Parameter(torch.zeros(*MATRIX))]
    on_host = measure_optimizer(torch.optim.AdamW, {}, parameters, torch.device("cpu"))
    on_device = measure_optimizer(torch.optim.AdamW, {}, parameters, torch.device("cuda"))
    fused = measure_optimizer(torch.optim.AdamW, {"fused": True}, parameters, torch.device("cuda"))
    sizes = 10 * [1000]
    assert 0 < on_host.temporary_bytes(sizes) < 4000  # of one parameter at a time
    assert on_device.temporary_bytes(sizes) >= 10_000
    assert fused.temporary_bytes(sizes) < 100


def test_a_model_without_trained_parameters_needs_nothing():
    assert measure_optimizer(torch.optim.AdamW, {}, []).temporary_bytes([]) == 0
