"""An evaluation that looks nothing up gives what the joint gives, and calls the joints of somebody else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tiny
from footplate import Trainer
from footplate.trainer import evaluating


class Cache:
    """What a model keeps for its next token."""


@dataclass
class Answer:
    loss: torch.Tensor
    logits: torch.Tensor


class Model(tiny.Regression):
    """Answers in the form it is told."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.modes: list[bool] = []

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        self.modes.append(torch.is_grad_enabled())
        logits = self.slope * x + self.offset
        errors = (logits - labels) ** 2
        loss = errors.mean()
        return {
            "dict": {"loss": loss, "logits": logits},
            "two answers": {"loss": loss, "logits": logits, "errors": errors},
            "tuple": (loss, logits),
            "a loss per row": {"loss": errors, "logits": logits},
            "a cache": {"loss": loss, "logits": logits, "past": Cache(), "nothing": None},
            "a dataclass": Answer(loss, logits),
            "a parameter": {"loss": loss, "logits": logits, "slope": self.slope.expand(len(x))},
        }[self.form]


FORMS = ["dict", "two answers", "tuple", "a loss per row", "a cache", "a dataclass", "a parameter"]


def build(tmp_path, form="dict", cls=Trainer, **settings) -> Trainer:
    return cls(Model(form), tiny.arguments(tmp_path, per_device_eval_batch_size=8, **settings))


def flatten(value: Any) -> list[np.ndarray]:
    return [value] if isinstance(value, np.ndarray) else [*value]


@pytest.mark.parametrize("form", FORMS)
def test_loss_answers_and_labels_are_those_of_the_joint(form, tmp_path, monkeypatch):
    rows = tiny.regression_data(20)
    plain = build(tmp_path, form)
    assert evaluating.settle_step(plain, False, None) is not None
    found = plain.predict(rows)
    monkeypatch.setattr(evaluating, "settle_step", lambda *_: None)
    joint = build(tmp_path, form)
    expected = joint.predict(rows)
    assert found.metrics["test_loss"] == expected.metrics["test_loss"]
    for own, other in zip(flatten(found.predictions), flatten(expected.predictions), strict=True):
        np.testing.assert_array_equal(own, other)
    np.testing.assert_array_equal(found.label_ids, expected.label_ids)
    assert plain.model.modes == joint.model.modes == [False] * 3
    assert torch.is_grad_enabled()


def spy_on(name: str, calls: list[str]) -> Any:
    original = getattr(Trainer, name)

    def spied(self: Any, *values: Any, **named: Any) -> Any:
        calls.append(name)
        return original(self, *values, **named)

    return spied


@pytest.mark.parametrize("name", evaluating._OWN_STEP)
@pytest.mark.parametrize("way", ["a subclass", "the instance", "the class itself"])
def test_a_joint_of_somebody_else_is_called(name, way, tmp_path, monkeypatch):
    calls: list[str] = []
    spied = spy_on(name, calls)
    cls = type("Own", (Trainer,), {name: spied}) if way == "a subclass" else Trainer
    if way == "the class itself":
        monkeypatch.setattr(Trainer, name, spied)
    trainer = build(tmp_path, cls=cls)
    if way == "the instance":
        setattr(trainer, name, spied.__get__(trainer))
    trainer.evaluate(tiny.regression_data(16))
    assert calls


@pytest.mark.parametrize(
    "batch",
    [
        {"x": torch.ones(2)},
        {"x": torch.ones(2), "labels": None},
        {"x": torch.ones(2), "labels": [1.0, 2.0]},
        {"x": torch.ones(2), "labels": torch.ones(2), "return_loss": True},
        {"x": torch.ones(2), "labels": torch.ones(2), "num_items": torch.ones(2)},
        {"x": torch.ones(2, requires_grad=True), "labels": torch.ones(2)},
        (torch.ones(2), torch.ones(2)),
        {},
    ],
)
def test_another_batch_is_left_to_the_joint(batch, tmp_path):
    trainer = build(tmp_path)
    plain = evaluating.settle_step(trainer, False, None)
    assert plain(trainer.model, batch) is None


@pytest.mark.parametrize(
    "settings", [{"loss_weighting": "items"}, {"label_smoothing_factor": 0.1}, {"label_names": []}]
)
def test_a_setting_that_asks_for_more_is_left_to_the_joint(settings, tmp_path):
    assert evaluating.settle_step(build(tmp_path, **settings), False, None) is None


class Failing(nn.Module):
    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        raise ValueError("no")


class FailingOnce(tiny.Regression):
    """A second call would hide the error of the first."""

    num_calls = 0

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        self.num_calls += 1
        if self.num_calls == 1:
            raise KeyError("not yet")
        return super().forward(x, labels)


def test_a_model_that_fails_is_not_called_again(tmp_path):
    model = FailingOnce()
    with pytest.raises(KeyError, match="not yet"):
        Trainer(model, tiny.arguments(tmp_path)).evaluate(tiny.regression_data(8))
    assert model.num_calls == 1


class Silent(tiny.Regression):
    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        return {"logits": x}


@pytest.mark.parametrize(("model", "words"), [(Failing(), "no"), (Silent(), "loss")])
def test_a_model_that_fails_fails_as_in_the_joint(model, words, tmp_path, monkeypatch):
    def fail() -> str:
        with pytest.raises(ValueError, match=words) as error:
            Trainer(model, tiny.arguments(tmp_path)).evaluate(tiny.regression_data(8))
        return str(error.value)

    said = fail()
    assert torch.is_grad_enabled()
    monkeypatch.setattr(evaluating, "settle_step", lambda *_: None)
    assert said == fail()
