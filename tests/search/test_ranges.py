"""A space may be written as a dictionary."""

from __future__ import annotations

import pytest

from footplate.search.ranges import build_space


class Asked:
    """Notes what it is asked for, and gives the lowest or first value."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def suggest_float(self, name, low, high, *, step, log):
        self.calls.append(("float", name, low, high, step, log))
        return low

    def suggest_int(self, name, low, high, *, step, log):
        self.calls.append(("int", name, low, high, step, log))
        return low

    def suggest_categorical(self, name, choices):
        self.calls.append(("categorical", name, choices))
        return choices[0]


def test_lists_ranges_and_single_values_are_told_apart():
    trial = Asked()
    values = build_space(
        {
            "learning_rate": {"low": "1e-5", "high": 1e-3, "log": True},  # YAML gives 1e-5 as text
            "num_train_epochs": {"low": 1, "high": 5},
            "weight_decay": {"low": 0, "high": 1, "step": 0.5},
            "optim": ["sgd", "adamw_torch"],
            "warmup_steps": (0, 10),
            "seed": 3,
        }
    )(trial)
    assert values == {
        "learning_rate": 1e-5,
        "num_train_epochs": 1,
        "weight_decay": 0,
        "optim": "sgd",
        "warmup_steps": 0,
        "seed": 3,
    }
    assert [call[:2] for call in trial.calls] == [
        ("float", "learning_rate"),
        ("int", "num_train_epochs"),
        ("float", "weight_decay"),
        ("categorical", "optim"),
        ("categorical", "warmup_steps"),
    ]


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({}, "is no space"),
        (3, "is no space"),
        ({"a": {"low": 1}}, "'low' and 'high'"),
        ({"a": {"low": 1, "high": 2, "hihg": 3}}, "'low' and 'high'"),
        ({"a": []}, "at least one value"),
        ({"a": {"low": "much", "high": 2}}, "Give a number"),
    ],
)
def test_what_is_no_space_is_refused(space, words):
    with pytest.raises(ValueError, match=words):
        build_space(space)
