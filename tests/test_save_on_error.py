"""An error of the user's code costs nothing: the last whole update is sealed, and resumed to the last bit."""

from __future__ import annotations

import logging
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import tiny
from augmented import AugmentedRows, AugmentedStream
from footplate import Trainer, TrainerCallback, default_data_collator
from footplate.checkpoint.saves import Saves

NUM_ROWS, MAX_STEPS = 23, 9


class Planted(RuntimeError):
    """The error that is planted."""


class Fuse:
    """Raises when it was asked so often; 0 never does."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def burn(self) -> None:
        self.count -= 1
        if self.count == 0:
            raise Planted("planted")


class Model(nn.Module):
    """Dropout draws numbers, and batch norm keeps running means."""

    def __init__(self, fuse: Fuse) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3))
        self.fuse = fuse

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layers(x)
        if self.training:
            self.fuse.burn()
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Rows(AugmentedRows):
    def __init__(self, fuse: Fuse) -> None:
        super().__init__(NUM_ROWS)
        self.fuse = fuse

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = super().__getitem__(index)
        self.fuse.burn()
        return row


class Stream(AugmentedStream):
    def __init__(self, fuse: Fuse) -> None:
        super().__init__(NUM_ROWS)
        self.fuse = fuse

    def read(self, index: int) -> dict[str, Any]:
        row = super().read(index)
        self.fuse.burn()
        return row


class Listener(TrainerCallback):
    wants_step_data = False

    def __init__(self, event: str, fuse: Fuse) -> None:
        setattr(self, event, lambda *args, **kwargs: fuse.burn())


class Setup(NamedTuple):
    data: str = "rows"
    accumulation: int = 1
    workers: int = 0


EVENTS = (
    *("on_step_begin", "on_substep_end", "on_pre_optimizer_step", "on_optimizer_step", "on_step_end"),
    *("on_log", "on_evaluate", "on_epoch_end", "on_prediction_step"),
)


def build(folder: str, setup: Setup, place: str = "", count: int = 0) -> Trainer:
    """A trainer with an error planted at `place`, when it was passed `count` times."""
    fuses = {name: Fuse(count if name == place else 0) for name in ("model", "data", "collator", "metrics")}

    def collate(samples: list[Any]) -> Any:
        batch = default_data_collator(samples)
        fuses["collator"].burn()
        return batch

    def metrics(prediction: Any) -> dict[str, float]:
        fuses["metrics"].burn()
        return {"mean": float(prediction.predictions.mean())}

    arguments = tiny.arguments(
        folder,
        max_steps=MAX_STEPS,
        per_device_train_batch_size=3,
        gradient_accumulation_steps=setup.accumulation,
        dataloader_num_workers=setup.workers,
        learning_rate=0.01,
        logging_steps=2,
        eval_strategy="steps",
        eval_steps=3,
        save_strategy="steps",
        save_steps=1000,
    )
    return Trainer(
        Model(fuses["model"]),
        arguments,
        data_collator=collate,
        train_dataset=Stream(fuses["data"]) if setup.data == "stream" else Rows(fuses["data"]),
        eval_dataset=AugmentedRows(7),
        compute_metrics=metrics,
        callbacks=[Listener(place, Fuse(count))] if place in EVENTS else [],
    )


def outcome(trainer: Trainer) -> tuple[str, dict[str, torch.Tensor]]:
    timed = ("runtime", "per_second")
    history = [
        sorted(item for item in entry.items() if not item[0].endswith(timed))
        for entry in trainer.state.log_history
    ]
    return repr(history), trainer.model.state_dict()


@cache
def straight(setup: Setup) -> tuple[str, dict[str, torch.Tensor]]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        trainer = build(folder, setup)
        trainer.train()
        return outcome(trainer)


def assert_exact(setup: Setup, place: str, count: int) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        failing = build(folder, setup, place, count)
        with pytest.raises(Planted):
            failing.train()
        step = failing.state.global_step
        assert step > 0
        assert Path(folder, f"checkpoint-{step}").is_dir()
        resumed = build(folder, setup)
        resumed.train(resume_from_checkpoint=True)
        history, weights = outcome(resumed)
    expected_history, expected_weights = straight(setup)
    assert history == expected_history
    assert all(torch.equal(value, weights[name]) for name, value in expected_weights.items())


SETUPS = [Setup(), Setup(accumulation=3), Setup("stream"), Setup("stream", accumulation=2)]


@pytest.mark.parametrize("setup", SETUPS, ids=str)
@pytest.mark.parametrize(
    ("place", "counts"),
    [
        ("model", (4, 9)),
        ("data", (14, 26)),
        ("collator", (9, 12)),
        ("metrics", (2, 3)),
        ("on_step_begin", (5,)),
        ("on_pre_optimizer_step", (4,)),
        ("on_optimizer_step", (3, 4, 6)),
        ("on_step_end", (3, 4, 5, 6)),
        ("on_log", (3, 4)),
        ("on_evaluate", (2,)),
        ("on_prediction_step", (2, 3)),
    ],
)
def test_an_error_anywhere_in_the_users_code_is_resumed_exactly(setup, place, counts):
    for count in counts:
        assert_exact(setup, place, count)


def test_an_error_inside_an_accumulated_update_is_resumed_exactly():
    assert_exact(Setup(accumulation=3), "on_substep_end", 5)


@pytest.mark.parametrize("setup", [Setup(workers=2), Setup("stream", workers=2)], ids=str)
def test_an_error_with_workers_is_resumed_exactly(setup):
    assert_exact(setup, "model", 5)


def test_an_error_in_a_worker_is_resumed(tmp_path):
    setup = Setup(workers=1)
    failing = build(str(tmp_path), setup, "data", 14)
    with pytest.raises(Planted):
        failing.train()
    resumed = build(str(tmp_path), setup)
    resumed.train(resume_from_checkpoint=True)
    assert outcome(resumed)[0] == straight(setup)[0]


def test_a_model_that_runs_out_of_memory_costs_no_update(tmp_path, monkeypatch):
    failing = build(str(tmp_path), Setup(accumulation=3), "model", 5)

    def burn(fuse: Fuse) -> None:
        fuse.count -= 1
        if fuse.count == 0:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    with monkeypatch.context() as patched:
        patched.setattr(Fuse, "burn", burn)
        with pytest.raises(torch.OutOfMemoryError):
            failing.train()
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-1"]
    resumed = build(str(tmp_path), Setup(accumulation=3))
    resumed.train(resume_from_checkpoint=True)
    expected_history, expected_weights = straight(Setup(accumulation=3))
    history, weights = outcome(resumed)
    assert history == expected_history
    assert all(torch.equal(value, weights[name]) for name, value in expected_weights.items())


def test_the_error_is_named_with_the_way_to_go_on(tmp_path, caplog):
    failing = build(str(tmp_path), Setup(), "model", 4)
    with caplog.at_level(logging.ERROR, "footplate"), pytest.raises(Planted):
        failing.train()
    assert "Training failed after 3 updates: Planted: planted" in caplog.text
    assert "checkpoint-3" in caplog.text
    assert "resume_from_checkpoint=True" in caplog.text


@pytest.mark.parametrize(("text", "said"), [("no.", "Planted: no. All"), ("", "Planted. All")])
def test_an_error_that_ends_a_sentence_or_says_nothing_is_quoted_well(caplog, text, said):
    saves = Saves(None)
    saves.sealed_step, saves.sealed_folder = 3, "checkpoint-3"
    with caplog.at_level(logging.ERROR, "footplate"):
        assert saves.report_sealed(3, Planted(text))
    assert f"Training failed after 3 updates: {said} of them are in checkpoint-3" in caplog.text


@pytest.mark.parametrize("settings", [{"save_on_error": False}, {"save_strategy": "no"}])
def test_nothing_is_sealed_where_nobody_wants_it(tmp_path, settings):
    failing = build(str(tmp_path), Setup(), "model", 4)
    for name, value in settings.items():
        setattr(failing.args, name, value)
    with pytest.raises(Planted):
        failing.train()
    assert not list(tmp_path.glob("checkpoint-*"))


def test_an_error_before_the_first_update_leaves_nothing(tmp_path):
    failing = build(str(tmp_path), Setup(), "model", 1)
    with pytest.raises(Planted):
        failing.train()
    assert not list(tmp_path.glob("checkpoint-*"))
