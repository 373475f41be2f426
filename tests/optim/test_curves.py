from __future__ import annotations

import copy
import pickle
import warnings
from functools import partial

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from footplate.optim import curves
from footplate.optim.curves import CurveLR

CURVE = partial(curves.cosine, 3, 20, 0.5, 0.0)


def walk(schedule, num_steps):
    rates = []
    for _ in range(num_steps):
        schedule.optimizer.step()
        schedule.step()
        rates.append(
            (list(schedule.get_last_lr()), [group["lr"] for group in schedule.optimizer.param_groups])
        )
    return rates


def test_the_short_step_gives_what_torch_gives(make_optimizer):
    ours, torchs = CurveLR(make_optimizer(0.1, 0.03), CURVE), LambdaLR(make_optimizer(0.1, 0.03), CURVE)
    assert walk(ours, 30) == walk(torchs, 30)
    assert ours.state_dict() == torchs.state_dict()
    assert list(ours.state_dict()) == list(torchs.state_dict())


def test_state_moves_between_torch_and_the_short_step(make_optimizer):
    ours, torchs = CurveLR(make_optimizer(0.1), CURVE), LambdaLR(make_optimizer(0.1), CURVE)
    walk(ours, 7)
    torchs.load_state_dict(copy.deepcopy(ours.state_dict()))
    continued = CurveLR(make_optimizer(0.1), CURVE)
    continued.load_state_dict(copy.deepcopy(torchs.state_dict()))
    assert walk(ours, 5) == walk(torchs, 5) == walk(continued, 5)


def test_a_rate_that_is_a_tensor_stays_the_same_tensor():
    rate = torch.tensor(0.5, dtype=torch.float64)
    optimizer = torch.optim.AdamW([nn.Parameter(torch.ones(1))], lr=rate, capturable=False, foreach=False)
    held = optimizer.param_groups[0]["lr"]
    schedule = CurveLR(optimizer, CURVE)
    walk(schedule, 6)
    assert optimizer.param_groups[0]["lr"] is held
    assert held.item() == 0.5 * CURVE(6)


def test_a_whole_number_as_rate_works():
    schedule = CurveLR(torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1), curves.constant)
    walk(schedule, 3)
    assert schedule.get_last_lr() == [1]


def test_a_group_added_after_the_schedule_is_noticed(make_optimizer):
    schedule = CurveLR(make_optimizer(0.1), CURVE)
    walk(schedule, 3)
    schedule.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    with pytest.raises(ValueError, match="zip"):
        schedule.step()


def test_stepping_before_the_optimizer_still_warns(make_optimizer):
    schedule = CurveLR(make_optimizer(0.1), CURVE)
    with pytest.warns(UserWarning, match=r"before `optimizer.step\(\)`"):
        schedule.step()


def test_the_old_epoch_argument_still_sets_the_position(make_optimizer):
    schedule = CurveLR(make_optimizer(0.1), CURVE)
    walk(schedule, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        schedule.step(10)
    assert schedule.get_last_lr() == [0.1 * CURVE(10)]


def test_a_schedule_can_be_pickled(make_optimizer):
    schedule = CurveLR(make_optimizer(0.1), CURVE)
    walk(schedule, 4)
    curve = pickle.loads(pickle.dumps(schedule.lr_lambdas[0]))
    assert [curve(step) for step in range(25)] == [CURVE(step) for step in range(25)]


def test_a_polynomial_run_that_is_all_warmup_ends_without_an_error():
    factors = [curves.polynomial(4, 4, lr_end=0.25, power=1.0, lr_init=0.5, step=step) for step in range(6)]
    assert factors == [0.0, 0.25, 0.5, 0.75, 0.5, 0.5]
