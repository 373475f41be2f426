from __future__ import annotations

import inspect

import pytest
from torch.optim.lr_scheduler import LambdaLR
from transformers import optimization as original

from footplate.optim import schedule_makers

MAKERS = sorted(name for name in vars(schedule_makers) if name.startswith("get_"))


def test_every_schedule_function_of_the_original_exists():
    theirs = {
        name
        for name in vars(original)
        if name.startswith("get_") and "schedule" in name and "adafactor" not in name
    } - {"get_scheduler"}
    assert theirs == set(MAKERS)


@pytest.mark.parametrize("name", MAKERS)
def test_parameters_and_defaults_are_the_originals(name):
    def shape(function):
        return [
            (key, value.kind, value.default) for key, value in inspect.signature(function).parameters.items()
        ]

    assert shape(getattr(schedule_makers, name)) == shape(getattr(original, name))


def test_positional_arguments_land_where_the_original_puts_them(make_optimizer):
    for module in (original, schedule_makers):
        schedule = module.get_polynomial_decay_schedule_with_warmup(make_optimizer(1.0), 1, 5, 0.25, 2.0)
        assert isinstance(schedule, LambdaLR)
        rates = []
        for _ in range(6):
            rates.append(schedule.get_last_lr()[0])
            schedule.optimizer.step()
            schedule.step()
        assert rates == [0.0, 1.0, 0.671875, 0.4375, 0.296875, 0.25]


def test_resuming_by_last_epoch_continues_the_curve(make_optimizer):
    rates = []
    for module in (original, schedule_makers):
        optimizer = make_optimizer(0.1)
        optimizer.param_groups[0]["initial_lr"] = 0.1
        schedule = module.get_cosine_schedule_with_warmup(optimizer, 2, 10, last_epoch=5)
        rates.append(schedule.get_last_lr())
    assert rates[0] == rates[1] != [0.1]


def test_an_end_rate_above_the_learning_rate_is_refused(make_optimizer):
    with pytest.raises(ValueError, match=r"lr_end=0\.2 .* learning rate, 0\.1.*lr_scheduler_kwargs"):
        schedule_makers.get_polynomial_decay_schedule_with_warmup(make_optimizer(0.1), 0, 10, lr_end=0.2)


@pytest.mark.parametrize("options", [{}, {"min_lr": 1e-5, "min_lr_rate": 0.1}])
@pytest.mark.parametrize(
    "name",
    ["get_cosine_with_min_lr_schedule_with_warmup", "get_cosine_with_min_lr_schedule_with_warmup_lr_rate"],
)
def test_a_lowest_rate_must_be_given_once(make_optimizer, name, options):
    with pytest.raises(ValueError, match="either min_lr or min_lr_rate in lr_scheduler_kwargs"):
        getattr(schedule_makers, name)(make_optimizer(0.1), 0, 10, **options)


def test_an_unknown_shape_of_the_plateau_schedule_is_refused(make_optimizer):
    with pytest.raises(ValueError, match=r"decay_type='exponential'.*1-sqrt.*lr_scheduler_kwargs"):
        schedule_makers.get_wsd_schedule(make_optimizer(0.1), 1, 2, 10, decay_type="exponential")


def test_the_plateau_schedule_needs_some_length(make_optimizer):
    with pytest.raises(ValueError, match="num_training_steps, or num_stable_steps in lr_scheduler_kwargs"):
        schedule_makers.get_wsd_schedule(make_optimizer(0.1), 1, 2)


def test_a_plateau_that_does_not_fill_the_run_is_mentioned(make_optimizer, caplog):
    schedule_makers.get_wsd_schedule(make_optimizer(0.1), 1, 2, 10, num_stable_steps=7)
    assert not caplog.records
    schedule_makers.get_wsd_schedule(make_optimizer(0.1), 1, 2, 10, num_stable_steps=3)
    assert "6 updates long, but the run has 10" in caplog.text


def test_a_time_scale_of_zero_is_refused(make_optimizer):
    with pytest.raises(ValueError, match=r"timescale=0 must be positive.*lr_scheduler_kwargs"):
        schedule_makers.get_inverse_sqrt_schedule(make_optimizer(0.1), 5, timescale=0)
