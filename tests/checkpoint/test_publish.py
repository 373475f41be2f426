"""What is sealed can be read again, and if not, the first checkpoint says so."""

from __future__ import annotations

import datetime
import importlib
import threading
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tiny
from footplate import Trainer, rng
from footplate.checkpoint import files, hashing
from footplate.checkpoint.files import load_plain
from footplate.checkpoint.publish import Contents, publish_checkpoint
from footplate.checkpoint.saves import Saves
from footplate.checkpoint.seal import verify_checkpoint
from footplate.checkpoint.weights import save_weights


class Memory(torch.optim.lr_scheduler.LambdaLR):
    """A schedule that remembers in a deque, an array, numbers of numpy and a duration."""

    def __init__(self, optimizer: Any) -> None:
        self.recent: deque[float] = deque(maxlen=3)
        self.sums = np.zeros(2)
        self.factor = np.float32(1)
        self.age = datetime.timedelta()
        super().__init__(optimizer, lambda step: float(self.factor))

    def step(self, *args: Any) -> None:
        self.recent.append(self.last_epoch)
        self.sums += [1, self.last_epoch]
        self.factor *= np.float32(0.9)
        self.age += datetime.timedelta(seconds=1)
        super().step(*args)


def build(folder: Path, schedule: Any = Memory, **settings: Any) -> Trainer:
    model = tiny.Regression()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    chosen = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2, "logging_steps": 1, **settings}
    return Trainer(
        model,
        tiny.arguments(folder, **chosen),
        train_dataset=tiny.regression_data(),
        optimizers=(optimizer, schedule(optimizer)),
    )


@pytest.mark.parametrize("in_background", [True, False])
def test_a_schedule_with_a_deque_an_array_and_a_duration_resumes_exactly(tmp_path, in_background):
    straight = build(tmp_path / "straight", save_in_background=in_background)
    straight.train()
    build(tmp_path / "run", max_steps=4, save_in_background=in_background).train()
    resumed = build(tmp_path / "run", save_in_background=in_background)
    resumed.train(resume_from_checkpoint=True)
    schedules = [straight.lr_scheduler, resumed.lr_scheduler]
    assert len({(s.recent.maxlen, *s.recent, *s.sums, s.factor, s.age) for s in schedules}) == 1
    assert all(type(value) is np.float32 for value in (schedules[0].factor, schedules[1].factor))
    assert schedules[1].sums.dtype == np.float64
    weights = [[value.item() for value in trainer.model.parameters()] for trainer in (straight, resumed)]
    assert weights[0] == weights[1]


class Strange:
    """A value that no safe reader makes."""


class Stranger(torch.optim.lr_scheduler.LambdaLR):
    def __init__(self, optimizer: Any) -> None:
        self.extra = Strange()
        super().__init__(optimizer, lambda step: 1.0)


def test_a_state_that_cannot_be_read_again_is_an_error_of_the_first_save(tmp_path, caplog):
    build(tmp_path, Stranger, max_steps=2, save_in_background=False).train()
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "scheduler.pt was written and cannot be read again" in errors[0]
    assert "It holds " in errors[0]
    assert "test_publish.Strange." in errors[0]
    assert not list(tmp_path.glob("*checkpoint-*"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("optimizer", {"state": {0: np.array([object()])}}),
        ("schedule", {"a": [deque([Strange()])]}),
        ("scaler", {Strange(): 1}),
        ("loader", {"a": (1, {"b": Strange()})}),
        ("schedule", {"a": np.ma.masked_array([1.0])}),
    ],
)
def test_the_error_names_the_file_and_the_type_and_leaves_nothing(name, value, tmp_path):
    def save_model(folder: str) -> None:
        Path(folder, "model.bin").write_bytes(b"weights")

    file = {"schedule": "scheduler"}.get(name, name)
    publish_checkpoint(tmp_path / "checkpoint-1", save_model, Contents("{}", **{name: {"a": 1}}))
    with pytest.raises(ValueError, match=rf"{file}\.pt was written and cannot be read again") as raised:
        publish_checkpoint(tmp_path / "checkpoint-2", save_model, Contents("{}", **{name: value}))
    assert any(word in str(raised.value) for word in ("Strange", "numpy.ndarray", "MaskedArray"))
    assert "weights_only" not in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-1"]


def test_only_kinds_of_values_that_are_new_are_read_back(tmp_path, monkeypatch):
    checked: list[Path] = []
    monkeypatch.setattr(files, "_readable", set())
    monkeypatch.setattr(files, "check_loadable", checked.append)
    for values in ({"a": torch.ones(2)}, {"b": torch.zeros(3)}, {"b": torch.zeros(3).half()}, {"b": {1: ()}}):
        files.save_plain(values, tmp_path / "optimizer.pt")
    assert len(checked) == 3


def test_a_schedule_that_changes_while_it_is_written_is_written_as_it_was(tmp_path):
    saves, may_go_on = Saves(), threading.Event()
    recent, rates = deque([1.0]), torch.ones(2)

    def save_copy(staging: str, values: dict[str, Any]) -> None:
        assert may_go_on.wait(10)
        torch.save(values, Path(staging, "model.bin"))

    contents = Contents("{}", schedule={"recent": recent, "rates": rates})
    saves.write(
        str(tmp_path / "checkpoint-1"),
        1,
        contents,
        {"w": torch.ones(1)},
        save_model=lambda folder: None,
        save_copy=save_copy,
        after=lambda: None,
        in_background=True,
    )
    recent.append(2.0)
    rates.zero_()
    may_go_on.set()
    assert saves.join() is None
    stored = load_plain(tmp_path / "checkpoint-1" / "scheduler.pt")
    assert stored["recent"] == deque([1.0])
    assert stored["rates"].tolist() == [1, 1]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A checkpoint whose files are larger than the buffer that they are written through."""
    folder = tmp_path_factory.mktemp("large") / "checkpoint-1"
    model = torch.nn.Linear(2100, 2100)
    optimizer = {"state": {0: {"exp_avg": torch.randn(5_000_000)}}}
    contents = Contents("{}", optimizer=optimizer)
    publish_checkpoint(folder, lambda staging: save_weights(model, staging), contents)
    return folder


def damage_bit(data: bytearray, at: int) -> None:
    data[at] ^= 128


def damage_order(data: bytearray, at: int) -> None:
    start = at // 4096 * 4096
    data[start : start + 8192] = data[start + 4096 : start + 8192] + data[start : start + 4096]


def damage_page(data: bytearray, at: int) -> None:
    start = at // 4096 * 4096
    data[start : start + 4096] = bytes(4096)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt"])
@pytest.mark.parametrize("damage", [damage_bit, damage_order, damage_page])
def test_damage_anywhere_in_a_large_file_is_found(damage, name, large):
    path = large / name
    original = path.read_bytes()
    assert verify_checkpoint(large).is_intact
    try:
        for at in (9000, len(original) // 2 + 7, len(original) - 600_000):
            data = bytearray(original)
            damage(data, at)
            path.write_bytes(data)
            reason = verify_checkpoint(large).reason
            assert reason == f"{name} has changed since it was written"
        path.write_bytes(original[:-1])
        assert verify_checkpoint(large).reason == f"{name} has {len(original) - 1} bytes of {len(original)}"
    finally:
        path.write_bytes(original)
    assert verify_checkpoint(large).is_intact


def test_what_footplate_writes_is_hashed_while_it_is_written(tmp_path, monkeypatch):
    read: list[str] = []

    def hash_file(file: Any, name: str = "page-sums") -> str:
        read.append(Path(file.name).name)
        return hashing.hash_file(file, name)

    monkeypatch.setattr(importlib.import_module("footplate.checkpoint.seal"), "hash_file", hash_file)
    contents = Contents("{}", optimizer={"a": torch.ones(9)}, schedule={"b": 1}, rng=rng.capture())
    publish_checkpoint(
        tmp_path / "checkpoint-1", lambda folder: save_weights(torch.nn.Linear(3, 2), folder), contents
    )
    assert read == ["trainer_state.json"]
    monkeypatch.undo()
    assert verify_checkpoint(tmp_path / "checkpoint-1").is_intact
