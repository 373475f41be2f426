"""Settings that a trial may change."""

from __future__ import annotations

import pytest

import footplate
from footplate.search.values import set_values, suggest_names


def arguments(**settings):
    return footplate.TrainingArguments(output_dir="unused", use_cpu=True, report_to="none", **settings)


def test_fields_get_the_kind_that_they_had():
    args = arguments()
    set_values(args, {"learning_rate": 1, "seed": 13.7, "lr_scheduler_type": "cosine", "max_steps": "7"})
    assert (args.learning_rate, args.seed, args.max_steps) == (1.0, 13, 7)
    assert args.lr_scheduler_type == footplate.SchedulerType.COSINE


def test_names_with_dots_reach_inside_a_field():
    groups = [{"match": "head.*", "lr": 1.0}, {"match": "*", "lr": 2.0}]
    args = arguments(optim_args="a=1, b=2", param_groups=groups)
    values = {
        "optim_args.b": 3,
        "optim_args.c": 0.5,
        "param_groups.1.lr": 0.1,
        "param_groups.head.*.weight_decay": 0.2,
        "lr_scheduler_kwargs.num_cycles": 2,
    }
    assert set_values(args, values) == []
    assert args.optim_args == "a=1,b=3,c=0.5"
    assert args.param_groups == [
        {"match": "head.*", "lr": 1.0, "weight_decay": 0.2},
        {"match": "*", "lr": 0.1},
    ]
    assert args.lr_scheduler_kwargs == {"num_cycles": 2}
    assert groups[1]["lr"] == 2.0  # what the user gave stays as it is


def test_what_has_no_effect_is_named():
    args = arguments()
    assert set_values(args, {"learning_rat": 1.0, "hidden_size": 2}) == ["learning_rat", "hidden_size"]
    assert "learning_rate" in suggest_names(args, ["learning_rat"])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"bf16": True}, "read when the Trainer is made"),
        ({"output_dir": "x"}, "read when the Trainer is made"),
        ({"learning_rate.x": 1}, "holds none"),
        ({"param_groups.tail.lr": 1}, r"has no group 'tail'; it has \['head'\]"),
    ],
)
def test_what_a_trial_cannot_set_is_refused(values, words):
    with pytest.raises(ValueError, match=words):
        set_values(arguments(param_groups=[{"match": "head"}]), values)
