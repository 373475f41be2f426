"""A loaded optimizer takes the options of the current settings and keeps what it has learned."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

from footplate.arguments import TrainingArguments
from footplate.optim.groups import build_optimizer, decay_parameter_names
from footplate.optim.names import find_optimizer
from footplate.optim.refresh import apply_options, read_options, recompute_rates
from footplate.optim.schedules import build_schedule

STEPS = 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(3, 3), nn.Linear(3, 1)

    def forward(self, x):
        return self.head(self.body(x)).square().mean()


class Run:
    def __init__(self, num_steps=STEPS, **settings):
        self.args = TrainingArguments("runs", warmup_steps=2, **settings)
        self.model = Net()
        kind, options = find_optimizer(self.args, self.model)
        names = decay_parameter_names(self.model)
        self.optimizer = build_optimizer(kind, options, self.model, self.args, names)
        self.scheduler = build_schedule(self.args, self.optimizer, num_steps)

    def train(self, num_updates):
        for _ in range(num_updates):
            self.model(torch.ones(2, 3)).backward()
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
        return self

    def resume(self, other, applies=True):
        """Take over the state of another run, then the options of this one's settings."""
        options = read_options(self.optimizer)
        self.model.load_state_dict(other.model.state_dict())
        self.optimizer.load_state_dict(copy.deepcopy(other.optimizer.state_dict()))
        self.scheduler.load_state_dict(other.scheduler.state_dict())
        if applies:
            apply_options(self.optimizer, self.scheduler, options)
        return self

    @property
    def groups(self):
        return [{k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups]


SETTINGS = {"learning_rate": 1e-2, "weight_decay": 0.1}


def test_without_a_change_nothing_changes_to_the_bit():
    old = Run(**SETTINGS).train(5)
    resumed = Run(**SETTINGS).resume(old)
    assert resumed.groups == old.groups
    assert resumed.scheduler.state_dict() == old.scheduler.state_dict()
    old.train(5)
    resumed.train(5)
    for ours, theirs in zip(resumed.model.parameters(), old.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_changed_rate_moves_the_curve_from_here_on():
    old = Run(**SETTINGS).train(5)
    resumed = Run(**{**SETTINGS, "learning_rate": 3e-2}).resume(old)
    straight = Run(**{**SETTINGS, "learning_rate": 3e-2}).train(5)
    for _ in range(4):
        assert [group["lr"] for group in resumed.groups] == [group["lr"] for group in straight.groups]
        assert resumed.scheduler.get_last_lr() == straight.scheduler.get_last_lr()
        resumed.train(1)
        straight.train(1)


def test_without_applying_the_old_rate_stays():
    """The reason for all this: a loaded state brings its old options along."""
    old = Run(**SETTINGS).train(5)
    assert Run(learning_rate=3e-2, weight_decay=0.7).resume(old, applies=False).groups == old.groups


@pytest.mark.parametrize(
    ("change", "key", "values"),
    [
        ({"weight_decay": 0.3}, "weight_decay", [0.3, 0.0]),
        ({"adam_beta1": 0.8}, "betas", [(0.8, 0.999)] * 2),
        ({"adam_epsilon": 1e-6}, "eps", [1e-6] * 2),
        ({"optim": "adamw_torch"}, "fused", [None] * 2),
    ],
    ids=str,
)
def test_other_options_are_those_of_the_settings_and_the_moments_stay(change, key, values):
    old = Run(optim="adamw_torch_fused", **SETTINGS).train(5)
    resumed = Run(**{"optim": "adamw_torch_fused", **SETTINGS, **change}).resume(old)
    assert [group[key] for group in resumed.groups] == values
    states = zip(resumed.optimizer.state.values(), old.optimizer.state.values(), strict=True)
    for ours, theirs in states:
        assert all(torch.equal(ours[name], theirs[name]) for name in ("step", "exp_avg", "exp_avg_sq"))
    resumed.train(2)


def test_groups_by_rule_get_their_own_rates():
    rules = [{"match": "head", "lr": 1e-3}]
    old = Run(param_groups=rules, **SETTINGS).train(5)
    changed = [{"match": "head", "lr": 5e-3}]
    resumed = Run(param_groups=changed, **SETTINGS).resume(old)
    straight = Run(param_groups=changed, **SETTINGS).train(5)
    assert [group["lr"] for group in resumed.groups] == [group["lr"] for group in straight.groups]


def test_a_longer_run_or_another_curve_counts_from_the_next_update_on():
    old = Run(**SETTINGS).train(5)
    for settings in ({"num_steps": 40}, {"lr_scheduler_type": "cosine"}):
        resumed = Run(**settings, **SETTINGS).resume(old)
        assert resumed.groups[0]["lr"] == Run(**settings, **SETTINGS).train(5).groups[0]["lr"]
        assert resumed.groups[0]["lr"] != old.groups[0]["lr"]


@pytest.mark.parametrize("kind", [ReduceLROnPlateau, lambda optimizer: StepLR(optimizer, 5)])
def test_a_schedule_whose_rate_is_its_state_keeps_it_and_says_so(kind, caplog):
    old = Run(**SETTINGS)
    old.optimizer.param_groups[0]["lr"] = 1e-7  # as low as the schedule has brought it
    for rate, num_warnings in ((1e-2, 0), (3e-2, 1)):
        run = Run(**{**SETTINGS, "learning_rate": rate, "weight_decay": 0.7})
        scheduler, options = kind(run.optimizer), read_options(run.optimizer)
        run.optimizer.load_state_dict(old.optimizer.state_dict())
        with caplog.at_level(logging.WARNING):
            apply_options(run.optimizer, scheduler, options)
        assert (run.groups[0]["lr"], run.groups[0]["weight_decay"]) == (1e-7, 0.7)
        assert len(caplog.records) == num_warnings
    assert f"{type(scheduler).__name__} keeps its rates in its state" in caplog.text


def test_a_rate_that_is_a_tensor_stays_the_same_object():
    rate = torch.tensor(0.5)
    optimizer = torch.optim.AdamW([nn.Parameter(torch.ones(1))], lr=rate, foreach=False, capturable=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5)
    before = optimizer.param_groups[0]["lr"]
    before.fill_(7.0)
    recompute_rates(scheduler)
    assert optimizer.param_groups[0]["lr"] is before
    assert float(before) == 0.25
