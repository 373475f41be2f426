from __future__ import annotations

import copy
import inspect

import pytest
import torch
from torch import nn
from transformers import optimization as original

from footplate.optim import adafactor
from footplate.optim.adafactor import Adafactor, AdafactorSchedule, get_adafactor_schedule

MODES = {
    "as the Trainer uses it": {"lr": 1e-3, "relative_step": False, "scale_parameter": False},
    "own rate": {},
    "own rate, warmed up": {"warmup_init": True},
    "own rate, unscaled": {"scale_parameter": False},
    "given rate, scaled": {"lr": 3e-2, "relative_step": False},
    "first moment": {"beta1": 0.9},
    "first moment, given rate": {"lr": 1e-2, "relative_step": False, "scale_parameter": False, "beta1": 0.5},
    "weight decay": {"weight_decay": 0.1},
    "weight decay, given rate": {
        "lr": 1e-2,
        "relative_step": False,
        "scale_parameter": False,
        "weight_decay": 0.1,
    },
    "tight clipping": {"clip_threshold": 0.1},
    "other memory": {"decay_rate": -0.3, "eps": (1e-20, 1e-2)},
}
SHAPES = [(5,), (), (4, 3), (2, 3, 4), (2, 2, 3, 3)]


def make_parameters(dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    return [nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in SHAPES]


def set_gradients(parameters, seed):
    generator = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        parameter.grad = (torch.randn(parameter.shape, generator=generator) * 3).to(parameter.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("mode", MODES)
def test_weights_and_state_are_the_originals_bit_for_bit(mode, dtype):
    results = []
    for cls in (Adafactor, original.Adafactor):
        parameters = make_parameters(dtype)
        optimizer = cls(parameters, **MODES[mode])
        for update in range(5):
            set_gradients(parameters, update)
            optimizer.step()
        results.append((parameters, optimizer.state_dict()["state"]))
    (ours, our_state), (theirs, their_state) = results
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.equal(mine, other)
    if dtype in (torch.float32, torch.float64):  # the first steps of a warm-up are lost in half precision
        assert not torch.equal(ours[2], make_parameters(dtype)[2])
    for index, state in their_state.items():
        assert state.keys() == our_state[index].keys()
        assert all(
            torch.equal(torch.as_tensor(value), torch.as_tensor(our_state[index][key]))
            for key, value in state.items()
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("direction", ["from the original", "to the original"])
def test_a_saved_state_continues_in_the_other(direction, dtype):
    classes = (
        (original.Adafactor, Adafactor)
        if direction == "from the original"
        else (Adafactor, original.Adafactor)
    )
    saving, loading = classes
    straight = make_parameters(dtype)
    optimizer = saving(straight, beta1=0.9)
    for update in range(3):
        set_gradients(straight, update)
        optimizer.step()
    moved = [nn.Parameter(parameter.detach().clone()) for parameter in straight]
    continued, reference = loading(moved, beta1=0.9), saving(straight, beta1=0.9)
    state = optimizer.state_dict()
    continued.load_state_dict(copy.deepcopy(state))
    reference.load_state_dict(
        copy.deepcopy(state)
    )  # loading rounds the state to the weights' type: do it to both
    for parameters, chosen in ((moved, continued), (straight, reference)):
        set_gradients(parameters, 9)
        chosen.step()
    assert all(torch.equal(mine, other) for mine, other in zip(moved, straight, strict=True))


def test_parameters_and_defaults_are_the_originals():
    def shape(function):
        return [(key, value.default) for key, value in inspect.signature(function).parameters.items()]

    for name in ("Adafactor", "AdafactorSchedule", "get_adafactor_schedule"):
        assert shape(getattr(adafactor, name)) == shape(getattr(original, name))


def test_a_parameter_without_gradient_stays_as_it_is():
    parameters = make_parameters()
    optimizer = Adafactor(parameters)
    set_gradients(parameters[1:], 0)
    optimizer.step()
    assert torch.equal(parameters[0], make_parameters()[0])
    assert parameters[0] not in optimizer.state


def test_step_returns_what_the_closure_gives():
    assert Adafactor(make_parameters()).step(lambda: 42.0) == 42.0
    assert Adafactor(make_parameters()).step() is None


def test_a_given_rate_and_an_own_rate_exclude_each_other():
    with pytest.raises(ValueError, match=r"lr=0\.1 and relative_step=True exclude each other"):
        Adafactor(make_parameters(), lr=0.1)
    with pytest.raises(ValueError, match="only with relative_step=True"):
        Adafactor(make_parameters(), lr=0.1, relative_step=False, warmup_init=True)


def test_sparse_gradients_are_refused():
    embedding = nn.Embedding(4, 2, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="sparse=False"):
        Adafactor(embedding.parameters()).step()


@pytest.mark.parametrize("options", [{}, {"warmup_init": True}, {"scale_parameter": False}])
def test_the_schedule_shows_the_originals_rates(options):
    rates = []
    for module in (adafactor, original):
        parameters = make_parameters()
        groups = [{"params": parameters[:2]}, {"params": parameters[2:]}]
        optimizer = module.Adafactor(groups, **options)
        schedule = module.get_adafactor_schedule(optimizer, initial_lr=0.5)
        shown = [schedule.get_last_lr()]
        for update in range(4):
            set_gradients(parameters, update)
            optimizer.step()
            schedule.step()
            shown.append([float(rate) for rate in schedule.get_last_lr()])
        rates.append(shown)
    assert rates[0] == rates[1]
    assert rates[0][0] == [0.5, 0.5] != rates[0][1]


def test_the_schedule_allows_for_groups_without_gradient():
    parameters = make_parameters()
    optimizer = Adafactor(
        [{"params": parameters[:1]}, {"params": parameters[1:]}, {"params": []}], scale_parameter=False
    )
    schedule = get_adafactor_schedule(optimizer, 0.25)
    assert isinstance(schedule, AdafactorSchedule)
    set_gradients(parameters[1:], 0)
    optimizer.step()
    schedule.step()
    assert schedule.get_last_lr() == [0.25, 0.01, 0.25]
