"""Optimizers, schedules and scalers go on after a restart as if nothing had happened."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from transformers import get_cosine_schedule_with_warmup
from transformers.optimization import Adafactor

from footplate.checkpoint.files import save_plain
from footplate.checkpoint.optimizer import (
    load_both,
    load_optimizer,
    load_scaler,
    load_schedule,
    save_optimizer,
    save_schedule,
)

OPTIMIZERS = {
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=0.1),
    "adamw_fused": lambda groups: torch.optim.AdamW(groups, lr=0.1, fused=True),
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9),
    "adagrad": lambda groups: torch.optim.Adagrad(groups, lr=0.1),
    "rmsprop": lambda groups: torch.optim.RMSprop(groups, lr=0.1),
    "adafactor": lambda groups: Adafactor(groups, scale_parameter=False, relative_step=False, lr=0.1),
}
SCHEDULES = {
    "cosine": lambda optimizer: get_cosine_schedule_with_warmup(optimizer, 2, 8),
    "step": lambda optimizer: lr_scheduler.StepLR(optimizer, np.int64(2), gamma=np.float64(0.5)),
    "plateau": lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer, patience=1),
    "sequential": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.LinearLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)], [2]
    ),
}


def build(optimizer, schedule="cosine"):
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    groups = [{"params": [model.weight], "weight_decay": 0.1}, {"params": [model.bias], "weight_decay": 0.0}]
    made = OPTIMIZERS[optimizer](groups)
    return model, made, SCHEDULES[schedule](made)


def train(model, optimizer, schedule, steps):
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        loss = model(torch.randn(4, 3, generator=generator)).pow(2).mean()
        loss.backward()
        optimizer.step()
        schedule.step(*([np.float64(5.0)] if isinstance(schedule, lr_scheduler.ReduceLROnPlateau) else []))
        optimizer.zero_grad()
    return [
        *(parameter.tolist() for parameter in model.parameters()),
        [g["lr"] for g in optimizer.param_groups],
    ]


@pytest.mark.parametrize(
    ("optimizer", "schedule"),
    [*((optimizer, "cosine") for optimizer in OPTIMIZERS), *(("adamw", schedule) for schedule in SCHEDULES)],
)
def test_a_restored_run_continues_to_the_last_bit(optimizer, schedule, tmp_path):
    straight = train(*build(optimizer, schedule), range(6))

    model, saved_optimizer, saved_schedule = build(optimizer, schedule)
    train(model, saved_optimizer, saved_schedule, range(3))
    save_optimizer(saved_optimizer, tmp_path / "new")
    save_schedule(saved_schedule, tmp_path / "new")
    weights = model.state_dict()

    model, fresh_optimizer, fresh_schedule = build(optimizer, schedule)
    model.load_state_dict(weights)
    assert load_optimizer(fresh_optimizer, tmp_path / "new")
    assert load_schedule(fresh_schedule, tmp_path / "new")
    assert train(model, fresh_optimizer, fresh_schedule, range(3, 6)) == straight
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["optimizer.pt", "scheduler.pt"]


def test_a_scaler_comes_back(tmp_path):
    saved, fresh = torch.amp.GradScaler("cpu", init_scale=8.0), torch.amp.GradScaler("cpu")
    save_plain(saved.state_dict(), tmp_path / "scaler.pt")
    assert load_scaler(fresh, tmp_path)
    assert fresh.get_scale() == 8


@pytest.mark.parametrize(
    ("load", "name"),
    [(load_optimizer, "optimizer.pt"), (load_schedule, "scheduler.pt"), (load_scaler, "scaler.pt")],
)
def test_a_missing_file_is_said_in_words(load, name, tmp_path, caplog):
    _, optimizer, schedule = build("sgd")
    target = {"optimizer.pt": optimizer, "scheduler.pt": schedule, "scaler.pt": torch.amp.GradScaler("cpu")}[
        name
    ]
    assert load(target, tmp_path) is False
    assert f"{tmp_path} has no {name}" in caplog.text
    assert "starts from the beginning" in caplog.text


def test_the_state_of_another_optimizer_is_refused_in_words(tmp_path):
    _, optimizer, _ = build("sgd")
    save_optimizer(optimizer, tmp_path)
    other = torch.optim.SGD(nn.Linear(3, 2).parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"optimizer\.pt does not fit this optimizer \(SGD\)"):
        load_optimizer(other, tmp_path)


def test_a_schedule_without_its_optimizer_goes_on_with_its_rate(tmp_path):
    def build():
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))

    optimizer, schedule = build()
    for _ in range(3):
        optimizer.step()
        schedule.step()
    save_schedule(schedule, tmp_path)
    optimizer, schedule = build()
    load_both(optimizer, schedule, tmp_path)
    assert optimizer.param_groups[0]["lr"] == 0.25
