"""Checkpoints that were changed on purpose and are named, or are the best."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from footplate.checkpoint.named import check_usable
from footplate.checkpoint.seal import seal, staging_folder, verify_checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    staging = staging_folder(tmp_path / "checkpoint-1")
    save_file({"w": torch.ones(5), "v": torch.zeros(3)}, staging / "model.safetensors")
    (staging / "trainer_state.json").write_text('{"global_step": 1}')
    torch.save({"a": 1}, staging / "optimizer.pt")
    torch.save({"b": 2}, staging / "scheduler.pt")
    seal(staging, tmp_path / "checkpoint-1")
    return tmp_path / "checkpoint-1"


def split_weights(folder: Path) -> None:
    """What a script for re-sharding does."""
    weights = load_file(folder / "model.safetensors")
    names = {}
    for number, (name, tensor) in enumerate(weights.items(), 1):
        save_file({name: tensor}, folder / f"model-{number:05d}-of-00002.safetensors")
        names[name] = f"model-{number:05d}-of-00002.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    (folder / "model.safetensors").unlink()


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_one_that_is_as_it_was_sealed_is_used_in_silence(checkpoint, caplog):
    check_usable(checkpoint)
    assert warnings_of(caplog) == []


def test_one_without_a_manifest_is_used_in_silence(checkpoint, caplog):
    (checkpoint / "manifest.json").unlink()
    check_usable(checkpoint)
    assert warnings_of(caplog) == []


def test_one_warning_says_all_that_differs(checkpoint, caplog):
    (checkpoint / "optimizer.pt").unlink()
    (checkpoint / "trainer_state.json").write_text('{"global_step": 7}')
    (checkpoint / "scheduler.pt").write_bytes((checkpoint / "scheduler.pt").read_bytes() + b"!")
    split_weights(checkpoint)
    assert not verify_checkpoint(checkpoint).is_intact
    check_usable(checkpoint)
    (warning,) = warnings_of(caplog)
    for part in (
        f"{checkpoint} is not as it was sealed",
        "optimizer.pt is missing",
        "trainer_state.json has changed since it was written",
        "scheduler.pt has ",
        "model.safetensors is missing",
        "manifest.json leaves out model.safetensors.index.json",
    ):
        assert part in warning


def test_a_damaged_manifest_counts_as_none_with_a_warning(checkpoint, caplog):
    (checkpoint / "manifest.json").write_text("{")
    check_usable(checkpoint)
    (warning,) = warnings_of(caplog)
    assert "manifest.json is damaged" in warning


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_what_stands_in_the_place_of_a_manifest_is_not_waited_for(checkpoint, kind):
    (checkpoint / "manifest.json").unlink()
    make = os.mkfifo if kind == "fifo" else os.mkdir
    make(checkpoint / "manifest.json")
    check_usable(checkpoint)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "it has no weights"),
        (
            lambda folder: (folder / "model.safetensors").write_bytes(b"cut"),
            "model.safetensors cannot be read",
        ),
        (lambda folder: (folder / "trainer_state.json").unlink(), "trainer_state.json is missing"),
        (lambda folder: (folder / "trainer_state.json").write_text("["), "trainer_state.json is damaged"),
        (lambda folder: (folder / "optimizer.pt").write_bytes(b"PK cut"), "optimizer.pt is cut short"),
    ],
)
def test_one_that_lacks_what_is_needed_is_refused_with_the_reason(checkpoint, damage, reason):
    damage(checkpoint)
    with pytest.raises(ValueError, match=f"is not an intact checkpoint: {reason}"):
        check_usable(checkpoint)


def test_the_best_one_needs_its_weights_alone(checkpoint, caplog):
    for name in ("trainer_state.json", "optimizer.pt", "scheduler.pt"):
        (checkpoint / name).unlink()
    check_usable(checkpoint, needs_state=False)
    assert len(warnings_of(caplog)) == 1
