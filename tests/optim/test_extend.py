"""Going on past the planned end: the rate of every update in closed form, and a state that can be loaded."""

from __future__ import annotations

import io
import logging
import math
import warnings

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau, StepLR

from footplate.arguments import TrainingArguments
from footplate.optim.extend import EXTEND_POLICIES, extend_schedule, plan_extensions
from footplate.optim.schedules import build_schedule

PEAK, WARMUP, OLD, NEW = 0.5, 4, 20, 32
DECAY = 6
KWARGS = {"warmup_stable_decay": {"num_decay_steps": DECAY, "decay_type": "linear", "min_lr_ratio": 0.1}}


def rising(step):
    return step / WARMUP


def linear(step, end):
    return rising(step) if step < WARMUP else max(0.0, (end - step) / (end - WARMUP))


def cosine(step, end):
    if step < WARMUP:
        return rising(step)
    return max(0.0, 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (end - WARMUP))))


def constant(step, end):
    return 1.0


def stable_decay(step, end):
    if step < WARMUP:
        return 0.1 + 0.9 * rising(step)
    start = end - DECAY
    if step < start:
        return 1.0
    return 0.1 if step >= end else 1 - 0.9 * (step - start) / DECAY


CURVES = {"linear": linear, "cosine": cosine, "constant": constant, "warmup_stable_decay": stable_decay}


def extended(curve, policy, step):
    """What the rate should be, as a share of the peak, in a run of 20 updates extended to 32."""
    if policy == "stretch":
        return curve(step, NEW)
    if step < OLD:
        return curve(step, OLD)
    return curve(OLD - 1, OLD) if policy == "hold" else curve(step - OLD, NEW - OLD)


class Run:
    """An optimizer with two groups and the schedule that the arguments name."""

    def __init__(self, name: str, num_steps: int, rate: float = PEAK):
        self.args = TrainingArguments(
            "runs", lr_scheduler_type=name, warmup_steps=WARMUP, lr_scheduler_kwargs=KWARGS.get(name)
        )
        weights = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))]
        self.optimizer = torch.optim.AdamW(
            [{"params": weights[:1]}, {"params": weights[1:], "lr": rate / 2}], lr=rate
        )
        self.scheduler = self.build(num_steps)

    def build(self, num_steps):
        return build_schedule(self.args, self.optimizer, num_steps)

    def rates(self, num_updates):
        """The rates that so many updates use, as shares of the peak."""
        seen = []
        for _ in range(num_updates):
            first, second = (group["lr"] for group in self.optimizer.param_groups)
            assert second == first / 2
            seen.append(first / PEAK)
            self.optimizer.step()
            self.scheduler.step()
        return seen

    def save(self):
        """State of optimizer and schedule through a file that only holds plain values."""
        file = io.BytesIO()
        torch.save([self.optimizer.state_dict(), self.scheduler.state_dict()], file)
        file.seek(0)
        return torch.load(file, weights_only=True)

    def load(self, state):
        self.optimizer.load_state_dict(state[0])
        self.scheduler.load_state_dict(state[1])

    def extend(self, policy, old_steps=OLD, new_steps=NEW):
        extend_schedule(self.scheduler, policy, old_steps, new_steps, self.build)


def stopped_run(name, at):
    run = Run(name, OLD)
    run.rates(at)
    return run.save()


@pytest.mark.parametrize("at", [OLD, 11], ids=["at the end", "before the end"])
@pytest.mark.parametrize("policy", EXTEND_POLICIES)
@pytest.mark.parametrize("name", CURVES)
def test_every_rate_is_that_of_the_policy(name, policy, at):
    run = Run(name, NEW)
    run.load(stopped_run(name, at))
    run.extend(policy)
    expected = [extended(CURVES[name], policy, step) for step in range(at, NEW)]
    assert run.rates(NEW - at) == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("policy", EXTEND_POLICIES)
@pytest.mark.parametrize("name", CURVES)
def test_an_extended_run_is_resumed_to_the_bit(name, policy):
    straight = Run(name, NEW)
    straight.load(stopped_run(name, OLD))
    straight.extend(policy)
    straight.rates(5)
    state = straight.save()  # the next line goes on past the file
    rest = straight.rates(NEW - OLD - 5)

    resumed = Run(name, NEW)
    resumed.load(state)
    resumed.extend(policy, old_steps=NEW)  # its trainer state says that 32 updates are planned
    assert resumed.rates(NEW - OLD - 5) == rest
    assert resumed.save()[1] == straight.save()[1]


def test_an_extended_run_can_be_extended_again():
    run = Run("linear", NEW)
    run.load(stopped_run("linear", OLD))
    run.extend("restart")
    run.rates(NEW - OLD)
    state = run.save()

    again = Run("linear", 50)
    again.load(state)
    again.extend("hold", old_steps=NEW, new_steps=50)
    last = linear(NEW - OLD - 1, NEW - OLD)
    assert again.rates(50 - NEW) == pytest.approx([last] * (50 - NEW))
    assert again.scheduler.extensions == [["restart", OLD, NEW], ["hold", NEW, 50]]


@pytest.mark.parametrize("policy", EXTEND_POLICIES)
def test_the_state_is_loadable_by_any_schedule_of_the_kind(policy):
    run = Run("cosine", NEW)
    run.load(stopped_run("cosine", OLD))
    run.extend(policy)
    plain = LambdaLR(torch.optim.AdamW(Run("cosine", NEW).optimizer.param_groups, lr=PEAK), lambda step: 1.0)
    plain.load_state_dict(run.save()[1])
    assert plain.last_epoch == OLD


def test_a_stretched_curve_is_that_of_the_longer_run_to_the_bit():
    longer = Run("cosine", NEW)
    expected = longer.rates(NEW)[OLD:]
    run = Run("cosine", NEW)
    run.load(stopped_run("cosine", OLD))
    run.extend("stretch")
    assert run.rates(NEW - OLD) == expected


def test_holding_next_to_nothing_is_warned_of(caplog):
    with caplog.at_level(logging.WARNING):
        for name, num_warnings in (("constant", 0), ("warmup_stable_decay", 0), ("cosine", 1)):
            run = Run(name, NEW)
            run.load(stopped_run(name, OLD))
            run.extend("hold")
            assert len(caplog.records) == num_warnings
    assert "will hardly change the model" in caplog.text
    assert "'stretch' or 'restart'" in caplog.text


def test_an_unknown_policy_is_refused():
    with pytest.raises(ValueError, match=r"extend_policy='keep' is not known.*'stretch', 'hold', 'restart'"):
        plan_extensions([], "keep", OLD, NEW)


@pytest.mark.parametrize("new_steps", [OLD, OLD - 1])
def test_an_end_that_is_not_later_is_refused(new_steps):
    with pytest.raises(ValueError, match=r"20 are planned already. Give a larger"):
        plan_extensions([], "stretch", OLD, new_steps)


def test_another_policy_half_way_is_refused():
    with pytest.raises(ValueError, match="already being extended to 32 updates, with extend_policy='hold'"):
        plan_extensions([["hold", OLD, NEW]], "stretch", NEW, NEW)


@pytest.mark.parametrize("policy", ["hold", "restart"])
@pytest.mark.parametrize("kind", [ReduceLROnPlateau, lambda optimizer: StepLR(optimizer, 5)])
def test_a_schedule_without_a_curve_can_only_be_stretched(policy, kind):
    run = Run("constant", OLD)
    scheduler = kind(run.optimizer)
    with pytest.raises(ValueError, match="Use extend_policy='stretch'"):
        extend_schedule(scheduler, policy, OLD, NEW, run.build)
    rates = [group["lr"] for group in run.optimizer.param_groups]
    extend_schedule(scheduler, "stretch", OLD, NEW, run.build)
    assert [group["lr"] for group in run.optimizer.param_groups] == rates


def test_a_curve_of_the_users_own_is_stretched_by_being_built_for_the_new_end():
    run = Run("constant", OLD)
    own = LambdaLR(run.optimizer, lambda step: 1 - step / NEW)
    own.load_state_dict({**own.state_dict(), "last_epoch": OLD})
    with pytest.raises(ValueError, match="extend_policy='hold' needs a schedule"):
        extend_schedule(own, "hold", OLD, NEW)
    extend_schedule(own, "stretch", OLD, NEW)
    assert run.optimizer.param_groups[0]["lr"] == PEAK * (1 - OLD / NEW)


def test_torch_has_nothing_to_warn_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = Run("linear", NEW)
        run.load(stopped_run("linear", OLD))
        run.extend("restart")
        run.rates(3)
