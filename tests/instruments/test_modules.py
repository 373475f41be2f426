"""Gradients, weights and updates by module, measured now and then in a run that does not change by it."""

from __future__ import annotations

import json
import math
import os
import signal

import pytest
import torch
from torch import nn

import tiny
from footplate import Trainer, TrainerCallback, TrainingArguments
from footplate.instruments import modules as measuring
from footplate.instruments.modules import ModuleWatch, Norms, to_json
from footplate.integrations.journal import last_run, read_events

TIMES = ("runtime", "per_second")


def notes_of(folder):
    """The notes of the last run in a folder, with the names in each of them."""
    names, found = None, []
    for event in last_run(read_events(folder / "events.jsonl")):
        if event["kind"] == "modules":
            names = event.pop("names", names)
            event.pop("time")
            found.append({**event, "names": names})
    return found


def log_of(trainer):
    return [
        {key: value for key, value in entry.items() if not key.endswith(TIMES)}
        for entry in trainer.state.log_history
    ]


def train(folder, every=None, callbacks=(), model=None, resume=None, **settings):
    settings = {"max_steps": 6, "logging_steps": 1, "per_device_train_batch_size": 4, **settings}
    trainer = tiny.build_trainer(
        folder,
        model if model is not None else tiny.bert_classifier(),
        tiny.classification_data(),
        module_stats_steps=every,
        options={"callbacks": list(callbacks)},
        **settings,
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


class Before(TrainerCallback):
    """Keeps the weights of before an update, its gradients as they are clipped, and the weights after it."""

    def __init__(self, update):
        self.update, self.seen = update, {}

    def keep(self, state, model, name):
        if state.global_step + 1 == self.update:
            self.seen[name] = {
                key: parameter.detach().double().clone() for key, parameter in model.named_parameters()
            }

    def on_pre_optimizer_step(self, args, state, control, model, **kwargs):
        self.keep(state, model, "before")
        if state.global_step + 1 == self.update:
            self.seen["gradient"] = {
                key: parameter.grad.double().clone() for key, parameter in model.named_parameters()
            }

    def on_optimizer_step(self, args, state, control, model, **kwargs):
        self.keep(state, model, "after")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"gradient_accumulation_steps": 2},
        {"max_grad_norm": 0.01, "optim": "adamw_torch"},
        {"max_grad_norm": 0.0, "optim": "sgd"},
        {"bf16": True, "adam_beta1": 0.5},
    ],
    ids=["fused", "accumulated", "clipped", "unclipped", "bf16"],
)
def test_a_measured_run_has_the_same_bits(tmp_path, settings):
    plain = train(tmp_path / "plain", **settings)
    states = [torch.get_rng_state()]
    measured = train(tmp_path / "measured", every=2, **settings)
    states.append(torch.get_rng_state())
    assert log_of(plain) == log_of(measured)
    for own, other in zip(plain.model.parameters(), measured.model.parameters(), strict=True):
        assert torch.equal(own, other)
    assert torch.equal(*states)
    notes = notes_of(tmp_path / "measured")
    assert [note["step"] for note in notes] == [2, 4, 6]
    for note, entry in zip(notes, log_of(measured)[1::2], strict=True):  # before clipping, as in the log
        assert math.hypot(*note["grad_norm"]) == pytest.approx(entry["grad_norm"], rel=0.01)


def test_the_values_are_those_of_the_weights_themselves(tmp_path):
    watch = Before(4)
    train(tmp_path, every=4, callbacks=[watch], max_grad_norm=0.0, learning_rate=1e-2)
    (note,) = notes_of(tmp_path)
    model = tiny.bert_classifier()
    assert note["names"] == [name for name, module in model.named_modules() if module._parameters]
    seen = watch.seen
    for place, name in enumerate(note["names"]):
        own = [key for key in seen["before"] if key.rpartition(".")[0] == name]
        assert own
        gradient, weight, moved = (
            torch.cat([tensor.flatten() for tensor in tensors]).norm().item()
            for tensors in (
                [seen["gradient"][key] for key in own],
                [seen["before"][key] for key in own],
                [seen["after"][key] - seen["before"][key] for key in own],
            )
        )
        assert note["grad_norm"][place] == pytest.approx(gradient, rel=6e-3)
        assert note["weight_norm"][place] == pytest.approx(weight, rel=6e-3)
        assert note["update_ratio"][place] == pytest.approx(moved / weight, rel=6e-3)


def test_without_the_setting_nothing_is_loaded_and_nothing_noted(tmp_path):
    for number, every in enumerate((None, 0)):
        trainer = train(tmp_path / str(number), every=every, max_steps=2)
        assert trainer._current_run.modules is None
        assert notes_of(tmp_path / str(number)) == []


def test_names_are_told_once_and_again_when_other_modules_train(tmp_path):
    class Freezes(TrainerCallback):
        def on_step_end(self, args, state, control, model, **kwargs):
            if state.global_step == 3:
                for parameter in model.bert.embeddings.parameters():
                    parameter.requires_grad_(False)

    train(tmp_path, every=1, callbacks=[Freezes()])
    events = [event for event in read_events(tmp_path / "events.jsonl") if event["kind"] == "modules"]
    assert [event["step"] for event in events if "names" in event] == [1, 4]
    assert not any(name.startswith("bert.embeddings") for name in events[3]["names"])
    assert len(events[0]["grad_norm"]) == len(events[3]["grad_norm"]) + 4
    for event in events[:3]:
        assert all(ratio > 0 for ratio in event["update_ratio"])


def test_frozen_modules_are_left_out_and_one_without_a_gradient_has_none(tmp_path):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.frozen, self.used, self.idle = (nn.Linear(1, 1) for _ in range(3))
            self.frozen.requires_grad_(False)

        def forward(self, x, labels=None):
            answer = self.used(self.frozen(x[:, None]))[:, 0]
            return {"loss": ((answer - labels) ** 2).mean()}

    args = tiny.arguments(tmp_path, max_steps=2, module_stats_steps=2, learning_rate=0.1)
    Trainer(Two(), args, train_dataset=tiny.regression_data(16)).train()
    (note,) = notes_of(tmp_path)
    assert note["names"] == ["used", "idle"]
    assert note["grad_norm"][0] > 0
    assert note["grad_norm"][1] is None
    assert note["update_ratio"][0] > 0
    assert note["update_ratio"][1] == 0.0


class Poisoned(nn.Module):
    """A model whose second layer gets a gradient that is not finite, at the fourth batch."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.count = nn.Linear(1, 2), nn.Linear(1, 1), 0

    def forward(self, x, labels=None):
        self.count += 1
        loss = ((self.first(x[:, None]).sum(1) - labels) ** 2).mean()
        side = self.second(x[:, None] * (math.inf if self.count == 4 else 1.0)).mean() * 1e-3
        return {"loss": loss + (side * 0.0 if self.count == 4 else side)}


@pytest.mark.parametrize("policy", ["skip", "warn"])
def test_a_value_that_is_not_finite_is_kept_and_an_update_left_out_moves_nothing(tmp_path, policy):
    args = tiny.arguments(
        tmp_path, max_steps=6, module_stats_steps=2, on_nonfinite=policy, learning_rate=0.1, rehearsal="off"
    )
    Trainer(Poisoned(), args, train_dataset=tiny.regression_data(64)).train()
    notes = notes_of(tmp_path)
    assert [note["step"] for note in notes] == [2, 4, 6]
    first, second = notes[1]["grad_norm"]
    assert isinstance(first, float)  # clipping has spread it to all gradients; here only its origin has it
    assert second == "NaN"
    if policy == "skip":
        assert notes[1]["update_ratio"] == [0.0, 0.0]
        assert all(ratio > 0 for ratio in notes[2]["update_ratio"])
    else:
        assert notes[1]["update_ratio"] == ["NaN", "NaN"]
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    noted = [line for line in lines if '"kind": "modules"' in line]
    for line in noted:
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not strict JSON"))


def test_a_resumed_run_measures_the_same_updates(tmp_path):
    train(tmp_path / "whole", every=2, max_steps=9)

    class Stops(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            if state.global_step == 5:
                os.kill(os.getpid(), signal.SIGTERM)

    settings = {"max_steps": 9, "save_strategy": "steps", "save_steps": 3}
    with pytest.raises(SystemExit):
        train(tmp_path / "cut", every=2, callbacks=[Stops()], **settings)
    assert [note["step"] for note in notes_of(tmp_path / "cut")] == [2, 4, 6]
    train(tmp_path / "cut", every=2, resume=str(tmp_path / "cut/checkpoint-3"), **settings)
    whole, cut = notes_of(tmp_path / "whole"), notes_of(tmp_path / "cut")
    assert [note["step"] for note in cut] == [2, 4, 6, 8]
    assert whole == cut


@pytest.mark.parametrize("event", ["on_pre_optimizer_step", "on_optimizer_step", "on_note", "on_step_end"])
def test_a_run_that_was_killed_in_a_measured_update_measures_it_again(tmp_path, event):
    def kill(args, state, control, **kwargs):
        if state.global_step + event.endswith("optimizer_step") == 6:
            os.kill(os.getpid(), signal.SIGKILL)

    killer = TrainerCallback()
    setattr(killer, event, kill)
    settings = {"save_strategy": "steps", "save_steps": 2, "max_steps": 8, "save_in_background": False}
    child = os.fork()
    if child == 0:
        try:
            train(tmp_path / "killed", every=3, callbacks=[killer], **settings)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    resumed = train(tmp_path / "killed", every=3, resume="auto", **settings)
    whole = train(tmp_path / "whole", every=3, max_steps=8)
    assert [note["step"] for note in notes_of(tmp_path / "killed")] == [3, 6]
    assert notes_of(tmp_path / "killed") == notes_of(tmp_path / "whole")
    for own, other in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(own, other)


def test_an_error_after_the_step_loses_no_note(tmp_path):
    class Fails(TrainerCallback):
        def on_optimizer_step(self, args, state, control, **kwargs):
            if state.global_step == 3 and not resumed:
                raise RuntimeError("now")

    resumed = False
    settings = {"save_strategy": "steps", "save_steps": 100, "callbacks": [Fails()]}
    with pytest.raises(RuntimeError, match="now"):
        train(tmp_path / "cut", every=2, **settings)
    resumed = True
    train(tmp_path / "cut", every=2, resume="auto", **settings)
    train(tmp_path / "whole", every=2)
    assert notes_of(tmp_path / "whole") == notes_of(tmp_path / "cut")


def test_one_value_is_read_of_a_measured_update_and_none_of_the_others(tmp_path, monkeypatch):
    reads = []
    own = Norms.read

    def read(self, join=None):
        values = own(self, join)
        reads.append(sum(map(len, values.values())))
        return values

    monkeypatch.setattr(Norms, "read", read)
    trainer = train(tmp_path, every=3)
    num_parameters = len(list(trainer.model.parameters()))
    assert reads == [3 * num_parameters] * 2


def test_where_measuring_fails_training_goes_on_without(tmp_path, monkeypatch, caplog):
    def fail(parameters):
        raise torch.OutOfMemoryError("no memory for a copy")

    monkeypatch.setattr(measuring, "copy_all", fail)
    trainer = train(tmp_path / "failed", every=2)
    (record,) = [record for record in caplog.records if "module_stats_steps=2" in record.getMessage()]
    assert "no memory for a copy" in record.getMessage()
    plain = train(tmp_path / "plain")
    assert log_of(trainer) == log_of(plain)
    assert notes_of(tmp_path / "failed") == []


def test_callbacks_hear_of_it(tmp_path):
    class Hears(TrainerCallback):
        def __init__(self):
            self.heard = []

        def on_note(self, args, state, control, kind, values, **kwargs):
            if kind == "modules":  # there is one of the model itself too
                self.heard.append((state.global_step, kind, sorted(values)))

    hears = Hears()
    train(tmp_path, every=3, callbacks=[hears], report=False)
    kinds = ["grad_norm", "update_ratio", "weight_norm"]
    assert hears.heard == [(3, "modules", sorted([*kinds, "names"])), (6, "modules", kinds)]


def test_gradients_are_those_before_the_loss_was_scaled():
    model = nn.Linear(2, 1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    noted = []
    watch = ModuleWatch(model, 1, lambda kind, **values: noted.append(values), scaler)
    loss = model(torch.ones(1, 2)).sum()
    scaler.scale(loss).backward()
    watch.see_gradients(1)
    watch.around(torch.optim.SGD(model.parameters(), 0.0).step)(None)
    watch.tell()
    assert noted[0]["grad_norm"] == [to_json(math.sqrt(3))]
    assert noted[0]["names"] == ["(model)"]


def test_tensors_of_several_types_are_measured_together():
    tensors = [
        torch.full((4,), 3.0),
        None,
        torch.full((4,), 300.0, dtype=torch.bfloat16),
        torch.ones(1).double(),
    ]
    norms = Norms()
    norms.add("gradient", tensors)
    norms.add("weight", tensors[2:])
    assert norms.read() == {"gradient": [6.0, None, 600.0, 1.0], "weight": [600.0, 1.0]}
    assert Norms().read() == {}


def test_numbers_are_short_and_strict_json():
    found = [to_json(value) for value in (0.0123456, 1e-30, 0.0, None, math.nan, math.inf, -math.inf)]
    assert found == [0.0123, 1e-30, 0.0, None, "NaN", "Infinity", "-Infinity"]


@pytest.mark.parametrize("optim", ["lomo", "adalomo", "galore_adamw_layerwise"])
def test_optimizers_that_step_inside_backward_are_refused(tmp_path, optim):
    with pytest.raises(ValueError, match=f"module_stats_steps=5 cannot go together with optim='{optim}'"):
        TrainingArguments(str(tmp_path), module_stats_steps=5, optim=optim)


@pytest.mark.parametrize("value", [-1, 0.5, True])
def test_a_number_that_counts_no_updates_is_refused(tmp_path, value):
    with pytest.raises(ValueError, match="module_stats_steps="):
        TrainingArguments(str(tmp_path), module_stats_steps=value)
