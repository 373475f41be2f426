"""A step on kept lists: torch's bits, torch's state, and torch's own step where anything is unusual."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from footplate.optim import kept_step
from footplate.optim.curves import CurveLR
from footplate.optim.formulas import FORMULAS as FORMULAS_OF_TORCH
from footplate.optim.kept_step import KeptStep

FUSED = {"fused": True, "lr": 0.05}


class Pair:
    """Two equal models with equal optimizers: one is stepped by `KeptStep`, the other by torch."""

    def __init__(
        self, kind: Any = torch.optim.AdamW, dtype: torch.dtype = torch.float32, **options: Any
    ) -> None:
        torch.manual_seed(0)
        self.models = [nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).to(dtype)]
        self.models.append(copy.deepcopy(self.models[0]))
        self.optimizers = [self._build(kind, model, {**FUSED, **options}) for model in self.models]
        self.step = KeptStep()

    @staticmethod
    def _build(kind: Any, model: nn.Module, options: dict[str, Any]) -> Any:
        matrices = [value for value in model.parameters() if value.dim() == 2]
        vectors = [value for value in model.parameters() if value.dim() == 1]
        options = {name: value for name, value in options.items() if name != "fused" or value is not None}
        return kind([{"params": matrices, "weight_decay": 0.3}, {"params": vectors}], **options)

    def make_steps(self, count: int = 4, without: tuple[str, ...] = ()) -> None:
        """Steps with random gradients, none for the parameters in `without`."""
        for _ in range(count):
            seed = torch.seed()
            for model in self.models:
                torch.manual_seed(seed)
                for name, value in model.named_parameters():
                    value.grad = None if name in without else torch.randn_like(value)
            self.step(self.optimizers[0])
            self.optimizers[1].step()

    def change(self, function: Any) -> None:
        """Do the same to both optimizers and their models."""
        for optimizer, model in zip(self.optimizers, self.models, strict=True):
            function(optimizer, model)

    def assert_equal(self) -> None:
        """Weights, moments and counters are the same to the last bit."""
        ours, theirs = (optimizer.state_dict() for optimizer in self.optimizers)
        assert ours["param_groups"] == theirs["param_groups"]
        assert ours["state"].keys() == theirs["state"].keys()
        for key, state in ours["state"].items():
            for name, value in state.items():
                assert torch.equal(value, theirs["state"][key][name]), (key, name)
                assert value.dtype == theirs["state"][key][name].dtype
        for value, expected in zip(self.models[0].parameters(), self.models[1].parameters(), strict=True):
            assert torch.equal(value, expected)


@pytest.fixture
def kernels(monkeypatch):
    """How often a group's kernel was called directly."""
    calls = []
    step = kept_step._Group.step
    monkeypatch.setattr(kept_step._Group, "step", lambda self, found: calls.append(1) or step(self, found))
    return calls


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("options", [{}, {"maximize": True, "betas": (0.5, 0.7), "eps": 0.1}])
def test_the_bits_are_torchs(kind, dtype, options, kernels):
    pair = Pair(kind, dtype, **options)
    pair.make_steps(6)
    pair.assert_equal()
    assert len(kernels) == 5 * 2  # all but the first step, for two groups


def test_the_rates_of_a_schedule_are_followed(kernels):
    pair = Pair()
    schedules = [CurveLR(optimizer, lambda step: 1 / (1 + step)) for optimizer in pair.optimizers]
    for _ in range(4):
        pair.make_steps(1)
        for schedule in schedules:
            schedule.step()
    pair.assert_equal()
    assert len(kernels) == 3 * 2


def test_settings_that_change_between_steps_count(kernels):
    pair = Pair()
    pair.make_steps(2)
    pair.change(lambda optimizer, _: optimizer.param_groups[0].update(weight_decay=0.9, betas=(0.1, 0.2)))
    pair.make_steps(2)
    pair.assert_equal()
    assert len(kernels) == 3 * 2


def test_parameters_may_have_no_gradient_for_a_while(kernels):
    pair = Pair()
    pair.make_steps(3)
    pair.make_steps(3, without=("0.weight", "1.bias"))
    pair.make_steps(3)
    pair.make_steps(3, without=("0.bias", "1.bias"))  # a whole group
    pair.assert_equal()
    assert len(kernels) == 2 * (2 + 2 + 2 + 2)


def load_own_state(optimizer, model):
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def add_a_group(optimizer, model):
    torch.manual_seed(1)
    model.register_parameter("late", nn.Parameter(torch.randn(3)))
    optimizer.add_param_group({"params": [model.late], "lr": 0.5})


def forget_a_state(optimizer, model):
    optimizer.state.pop(model[0].weight)


def replace_a_moment(optimizer, model):
    optimizer.state[model[0].weight]["exp_avg"] = torch.ones_like(model[0].weight)


def replace_a_state(optimizer, model):
    state = optimizer.state[model[1].bias]
    optimizer.state[model[1].bias] = {name: torch.ones_like(value) for name, value in state.items()}


def set_a_counter(optimizer, model):
    optimizer.state[model[1].bias]["step"].fill_(100)


def replace_a_parameter(optimizer, model):
    torch.manual_seed(2)
    optimizer.state.pop(model[0].weight)
    optimizer.param_groups[0]["params"][0] = model[0].weight = nn.Parameter(torch.randn(4, 3))


def take_the_rate_from_a_tensor(optimizer, model):
    optimizer.param_groups[0]["lr"] = torch.tensor(0.01)


def leave_the_kernel(optimizer, model):
    for group in optimizer.param_groups:
        group["fused"] = False


CHANGES = [
    *(load_own_state, add_a_group, forget_a_state, replace_a_moment, replace_a_state, set_a_counter),
    *(replace_a_parameter, take_the_rate_from_a_tensor, leave_the_kernel),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_of_the_optimizer_between_two_steps_is_seen(change):
    pair = Pair()
    pair.make_steps(3)
    pair.change(change)
    pair.make_steps(3)
    pair.assert_equal()


@pytest.mark.parametrize("kind", ["pre", "post", "global"])
def test_hooks_are_called(kind, kernels):
    pair, heard = Pair(), []
    pair.make_steps(2)
    kernels.clear()
    optimizer = pair.optimizers[0]
    register = {
        "pre": optimizer.register_step_pre_hook,
        "post": optimizer.register_step_post_hook,
        "global": register_optimizer_step_post_hook,
    }[kind]
    handle = register(lambda owner, *_: heard.append(owner))
    pair.make_steps(2)
    handle.remove()
    assert heard.count(optimizer) == 2
    assert not kernels
    pair.make_steps(2)
    pair.assert_equal()
    assert len(kernels) == 2  # the first step after them makes the lists


def test_a_step_that_somebody_replaced_is_called(monkeypatch, kernels):
    pair, heard = Pair(), []
    pair.make_steps(2)
    kernels.clear()
    optimizer = pair.optimizers[0]
    own = optimizer.step
    optimizer.step = lambda *args: heard.append("instance") or own(*args)
    pair.make_steps(2)
    del optimizer.step
    original = torch.optim.AdamW.step
    monkeypatch.setattr(
        torch.optim.AdamW, "step", lambda self, *args: heard.append("class") or original(self)
    )
    pair.make_steps(1)
    assert heard == ["instance", "instance", "class", "class"]
    assert not kernels
    pair.assert_equal()


def test_a_profiler_sees_steps_under_their_names():
    pair = Pair()
    pair.make_steps(2)
    with torch.profiler.profile() as profile:
        pair.make_steps(1)
    names = [event.key for event in profile.key_averages() if "Optimizer.step" in event.key]
    assert names == ["Optimizer.step#AdamW.step"]
    pair.assert_equal()


def test_a_loss_scaler_takes_part(kernels):
    pair = Pair()
    pair.make_steps(2)
    kernels.clear()
    pair.change(lambda optimizer, _: setattr(optimizer, "found_inf", torch.tensor(1.0)))
    pair.change(lambda optimizer, _: setattr(optimizer, "grad_scale", torch.tensor(2.0)))
    pair.make_steps(1)
    pair.assert_equal()
    assert not kernels


def test_sparse_gradients_are_left_to_torch():
    weight = nn.Embedding(5, 2, sparse=True)
    optimizer = torch.optim.AdamW(weight.parameters(), **FUSED)
    step = KeptStep()
    for _ in range(2):
        weight.weight.grad = torch.ones(5, 2)
        step(optimizer)
    weight.weight.grad = None
    weight(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="sparse gradients"):
        step(optimizer)


class OwnStep(torch.optim.AdamW):
    """An optimizer whose step does more."""

    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for value in group["params"]:
                value.data.mul_(0.5)


OTHERS = [(OwnStep, {}), (torch.optim.Adamax, {"fused": None})]


@pytest.mark.parametrize(("kind", "options"), OTHERS)
def test_other_optimizers_make_their_own_steps(kind, options, kernels):
    pair = Pair(kind, **options)
    pair.make_steps(4)
    pair.assert_equal()
    assert not kernels


FORMULAS = [
    (torch.optim.Adam, {"fused": False}),
    (torch.optim.Adam, {"fused": None, "foreach": True, "amsgrad": True}),
    (torch.optim.AdamW, {"fused": None}),
    (torch.optim.AdamW, {"fused": None, "foreach": True, "maximize": True}),
    (torch.optim.AdamW, {"fused": True, "amsgrad": True}),
    (torch.optim.NAdam, {"fused": None, "decoupled_weight_decay": True}),
    (torch.optim.RAdam, {"fused": None, "foreach": True}),
    (torch.optim.SGD, {"fused": None}),
    (torch.optim.SGD, {"fused": None, "momentum": 0.9, "nesterov": True}),
    (torch.optim.SGD, {"fused": None, "momentum": 0.9, "dampening": 0.1, "foreach": True}),
    (torch.optim.SGD, {"fused": True, "momentum": 0.9}),
    (torch.optim.Adagrad, {"fused": None, "lr_decay": 0.1}),
    (torch.optim.Adagrad, {"fused": True}),
    (torch.optim.RMSprop, {"fused": None}),
    (torch.optim.RMSprop, {"fused": None, "centered": True, "momentum": 0.9, "foreach": True}),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("kind", "options"), FORMULAS)
def test_the_bits_of_other_functions_are_torchs(kind, options, dtype, kernels):
    pair = Pair(kind, dtype, **options)
    pair.make_steps(4)
    pair.make_steps(3, without=("0.weight", "1.bias"))
    pair.assert_equal()
    assert len(kernels) == 2 * (3 + 2)


def test_a_state_that_a_changed_setting_needs_is_made_by_torch(kernels):
    pair = Pair(torch.optim.SGD, fused=None)
    pair.make_steps(2)
    pair.change(lambda optimizer, _: [group.update(momentum=0.9) for group in optimizer.param_groups])
    pair.make_steps(3)
    pair.assert_equal()
    assert len(kernels) == 2 * (1 + 2)


def test_a_state_that_was_cleared_is_made_again_by_torch(kernels):
    pair = Pair()
    pair.make_steps(2)
    pair.change(lambda optimizer, model: optimizer.state[model[0].weight].clear())
    pair.make_steps(2)
    pair.assert_equal()


def test_parameters_of_two_dtypes_may_share_a_group(kernels):
    pair = Pair(torch.optim.AdamW, fused=None, foreach=True)
    pair.change(lambda _, model: model[1].to(torch.float64))
    pair.make_steps(4)
    pair.assert_equal()
    assert len(kernels) == 2 * 3


def test_the_formulas_take_all_that_torchs_functions_take():
    given = {"grad_scale", "found_inf", "has_complex", "has_sparse_grad", "beta1", "beta2"}
    for kind, formula in FORMULAS_OF_TORCH.items():
        wanted = list(inspect.signature(formula.function).parameters)[2 + len(formula.states) :]
        assert {*wanted} - given == {*formula.settings}, kind


def test_several_optimizers_may_take_turns():
    first, second = Pair(), Pair(torch.optim.Adam)
    second.step = first.step
    for _ in range(3):
        first.make_steps(2)
        second.make_steps(2)
    first.assert_equal()
    second.assert_equal()


def test_states_go_to_torch_and_back_through_a_file(tmp_path):
    pair = Pair()
    pair.make_steps(3)
    for number, optimizer in enumerate(pair.optimizers):
        torch.save(optimizer.state_dict(), tmp_path / f"{number}.pt")
    for number, optimizer in enumerate(reversed(pair.optimizers)):
        optimizer.load_state_dict(torch.load(tmp_path / f"{number}.pt", weights_only=True))
    pair.make_steps(3)
    pair.assert_equal()
