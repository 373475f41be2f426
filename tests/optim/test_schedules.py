from __future__ import annotations

import copy
import io
import random
import warnings

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import optimization as original
from transformers.trainer_utils import SchedulerType as OriginalSchedulerType

from footplate.optim import schedules
from footplate.outputs import SchedulerType

# name, settings: every schedule that follows a curve, with its settings left alone and moved
CURVES = [
    ("constant", None),
    ("constant_with_warmup", None),
    ("linear", None),
    ("cosine", None),
    ("cosine", {"num_cycles": 1.7}),
    ("cosine_with_restarts", None),
    ("cosine_with_restarts", {"num_cycles": 3}),
    ("polynomial", None),
    ("polynomial", {"lr_end": 1e-5, "power": 2.5}),
    ("inverse_sqrt", None),
    ("inverse_sqrt", {"timescale": 37}),
    ("cosine_with_min_lr", {"min_lr": 1e-5}),
    ("cosine_with_min_lr", {"min_lr_rate": 0.1, "num_cycles": 1.2}),
    ("cosine_warmup_with_min_lr", {"min_lr": 3e-5}),
    ("cosine_warmup_with_min_lr", {"min_lr_rate": 0.07, "warmup_lr_rate": 0.3}),
    ("warmup_stable_decay", {"num_decay_steps": 11}),
    ("warmup_stable_decay", {"num_decay_steps": 11, "warmup_type": "cosine", "decay_type": "linear"}),
    ("warmup_stable_decay", {"num_decay_steps": 20, "warmup_type": "1-sqrt", "decay_type": "1-sqrt"}),
    ("warmup_stable_decay", {"num_decay_steps": 9, "num_stable_steps": 4, "min_lr_ratio": 0.1}),
    ("warmup_stable_decay", {"num_decay_steps": 9, "num_cycles": 1.5, "min_lr_ratio": 0.3}),
    ("warmup_stable_decay", {"num_decay_steps": 60}),
]


def make_both(make_optimizer, name, num_warmup_steps, num_steps, options):
    made = []
    for module in (schedules, original):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            schedule = module.get_scheduler(
                name, make_optimizer(3.7e-4, 1.3e-2), num_warmup_steps, num_steps, copy.deepcopy(options)
            )
        made.append(schedule)
    return made


def walk(schedule, num_steps):
    """The rates of the next updates, bit for bit."""
    rates = []
    for _ in range(num_steps):
        rates.append([float(rate).hex() for rate in schedule.get_last_lr()])
        schedule.optimizer.step()
        schedule.step()
    return rates


@pytest.mark.parametrize("num_warmup_steps", [0, 1, 7, 50])
@pytest.mark.parametrize(("name", "options"), CURVES)
def test_rates_are_the_originals_at_every_update(make_optimizer, name, options, num_warmup_steps):
    for num_steps in (51, 13):
        ours, theirs = make_both(make_optimizer, name, num_warmup_steps, num_steps, options)
        assert isinstance(ours, LambdaLR)
        assert walk(ours, 60) == walk(theirs, 60)
        assert ours.state_dict() == theirs.state_dict()


@pytest.mark.parametrize(("name", "options"), CURVES)
def test_state_loads_into_the_originals_and_back(make_optimizer, name, options):
    ours, theirs = make_both(make_optimizer, name, 5, 40, options)
    fresh_ours, fresh_theirs = make_both(make_optimizer, name, 5, 40, options)
    walk(ours, 9)
    walk(theirs, 9)
    file = io.BytesIO()
    torch.save(ours.state_dict(), file)
    file.seek(0)
    fresh_theirs.load_state_dict(torch.load(file, weights_only=True))
    fresh_ours.load_state_dict(theirs.state_dict())
    assert walk(fresh_ours, 30) == walk(fresh_theirs, 30) == walk(ours, 30)


@pytest.mark.parametrize("type_", list(SchedulerType))
def test_every_name_makes_its_schedule(make_optimizer, type_):
    needed = {
        SchedulerType.WARMUP_STABLE_DECAY: {"num_decay_steps": 3},
        SchedulerType.COSINE_WITH_MIN_LR: {"min_lr_rate": 0.1},
        SchedulerType.COSINE_WARMUP_WITH_MIN_LR: {"min_lr_rate": 0.1},
    }
    for name in (type_, type_.value, OriginalSchedulerType(type_.value)):
        schedule = schedules.get_scheduler(name, make_optimizer(0.1), 2, 10, needed.get(type_))
        assert len(schedule.get_last_lr()) == 1
    assert schedules.TYPE_TO_SCHEDULER_FUNCTION.keys() == set(SchedulerType)


def test_plateau_follows_the_metric_as_torch_does(make_optimizer):
    ours, theirs = make_both(
        make_optimizer, "reduce_lr_on_plateau", None, None, {"patience": 1, "factor": 0.3}
    )
    for metric in (1.0, 0.9, 0.95, 0.95, 0.95, 0.95, 0.1):
        ours.step(metric)
        theirs.step(metric)
        assert ours.get_last_lr() == theirs.get_last_lr()
    assert ours.get_last_lr()[0] < 3.7e-4
    assert ours.state_dict() == theirs.state_dict()


def test_build_schedule_reads_the_arguments(make_args, make_optimizer):
    args = make_args(lr_scheduler_type="cosine", lr_scheduler_kwargs={"num_cycles": 1.5}, warmup_steps=0.1)
    built = schedules.build_schedule(args, make_optimizer(0.1), 45)
    assert walk(built, 45) == walk(
        original.get_cosine_schedule_with_warmup(make_optimizer(0.1), 5, 45, 1.5), 45
    )


def test_build_schedule_accepts_empty_settings(make_args, make_optimizer):
    args = make_args(
        lr_scheduler_type=SchedulerType.CONSTANT_WITH_WARMUP, lr_scheduler_kwargs={}, warmup_steps=2
    )
    assert [
        float.fromhex(rate) for [rate] in walk(schedules.build_schedule(args, make_optimizer(1.0), 9), 4)
    ] == [0.0, 0.5, 1.0, 1.0]


def test_an_unknown_name_lists_the_known_ones(make_optimizer):
    with pytest.raises(ValueError, match=r"'linaer' is not a SchedulerType.*'linear'"):
        schedules.get_scheduler("linaer", make_optimizer(0.1), 0, 10)


@pytest.mark.parametrize("missing", ["num_warmup_steps", "num_training_steps"])
def test_a_schedule_says_what_it_must_know_of_the_run(make_optimizer, missing):
    given = {"num_warmup_steps": 1, "num_training_steps": 10, missing: None}
    with pytest.raises(ValueError, match=f"'linear' needs {missing}"):
        schedules.get_scheduler("linear", make_optimizer(0.1), **given)


def test_the_plateau_schedule_can_do_without_the_runs_length(make_optimizer):
    options = {"num_decay_steps": 2, "num_stable_steps": 3}
    ours, theirs = make_both(make_optimizer, "warmup_stable_decay", 1, None, options)
    assert walk(ours, 8) == walk(theirs, 8)


def test_a_missing_setting_names_lr_scheduler_kwargs(make_optimizer):
    with pytest.raises(
        TypeError, match=r"'warmup_stable_decay' needs \['num_decay_steps'\] in lr_scheduler_kwargs"
    ):
        schedules.get_scheduler("warmup_stable_decay", make_optimizer(0.1), 1, 10)


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("linear", "last_epoch"),
        ("cosine", "num_cycles"),
        ("reduce_lr_on_plateau", "patience"),
        ("greedy", "smooth"),
    ],
)
def test_an_unknown_setting_names_those_allowed(make_optimizer, name, allowed):
    with pytest.raises(TypeError, match=rf"lr_scheduler_kwargs has \['cycles'\].*'{name}'.*{allowed}"):
        schedules.get_scheduler(name, make_optimizer(0.1), 1, 10, {"cycles": 2})


def test_settings_of_a_constant_rate_are_ignored_aloud(make_optimizer, caplog):
    schedule = schedules.get_scheduler("constant", make_optimizer(0.1), 1, 10, {"num_cycles": 2})
    assert schedule.get_last_lr() == [0.1]
    assert "has no effect" in caplog.text


def test_only_plateau_and_greedy_follow_a_metric(make_optimizer):
    def follows(module, name):
        return schedules.follows_metric(module.get_scheduler(name, make_optimizer(0.1), 1, 10))

    for module in (schedules, original):
        assert follows(module, "reduce_lr_on_plateau")
        assert follows(module, "greedy")
        assert not follows(module, "linear")
        assert not follows(module, "constant")


def test_a_wrapped_schedule_is_looked_into(make_optimizer):
    from accelerate.scheduler import AcceleratedScheduler

    plateau = schedules.get_scheduler("reduce_lr_on_plateau", make_optimizer(0.1))
    assert schedules.follows_metric(AcceleratedScheduler(plateau, []))


def test_random_settings_agree_with_the_original(make_optimizer):
    draw = random.Random(0)
    for _ in range(60):
        num_steps = draw.randint(1, 80)
        num_warmup_steps = draw.randint(0, num_steps)
        options = {
            "num_cycles": draw.uniform(0.1, 4),
            "min_lr_rate": draw.random(),
            "warmup_lr_rate": draw.random(),
        }
        ours, theirs = make_both(
            make_optimizer, "cosine_warmup_with_min_lr", num_warmup_steps, num_steps, options
        )
        assert walk(ours, num_steps + 3) == walk(theirs, num_steps + 3)
