"""The checkpoints of a run on their way to the disk."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from footplate.checkpoint.publish import Contents
from footplate.checkpoint.saves import Saves
from footplate.checkpoint.seal import verify_checkpoint


def write(saves: Saves, folder: Path, step: int, state: dict[str, Any], **options: Any) -> None:
    def save(staging: str, values: dict[str, Any] = state) -> None:
        torch.save(values, Path(staging, "model.bin"))

    settings = {
        "save_model": save,
        "save_copy": save,
        "after": lambda: None,
        "in_background": True,
        **options,
    }
    saves.write(str(folder / f"checkpoint-{step}"), step, Contents("{}"), state, **settings)


def saved(folder: Path, step: int) -> dict[str, Any]:
    values: dict[str, Any] = torch.load(folder / f"checkpoint-{step}" / "model.bin", weights_only=True)
    return values


@pytest.mark.parametrize("in_background", [True, False])
def test_a_checkpoint_is_sealed_and_named_once(tmp_path, in_background):
    saves = Saves()
    write(saves, tmp_path, 3, {"w": torch.ones(2)}, in_background=in_background)
    assert saves.join() is None
    saves.check_last(None)
    folder = str(tmp_path / "checkpoint-3")
    assert verify_checkpoint(folder).is_intact
    assert saves.sealed_folder == folder
    assert list(saves.sealed()) == [{"checkpoint": folder, "checkpoint_step": 3}]
    assert list(saves.sealed()) == []


def test_what_training_changes_meanwhile_is_not_written(tmp_path):
    saves, weights, is_changed = Saves(), torch.ones(2), threading.Event()

    def save_copy(staging: str, values: dict[str, Any]) -> None:
        assert is_changed.wait(10)
        torch.save(values, Path(staging, "model.bin"))

    write(saves, tmp_path, 1, {"w": weights}, save_copy=save_copy)
    weights.zero_()
    is_changed.set()
    assert saves.join() is None
    assert saved(tmp_path, 1)["w"].tolist() == [1, 1]


def test_a_failed_write_is_kept_and_named_at_the_end(tmp_path, caplog):
    saves = Saves()
    write(saves, tmp_path, 1, {})

    def fail(*args: Any) -> None:
        raise OSError("no space")

    saves.join()
    write(saves, tmp_path, 2, {}, save_copy=fail)
    error = saves.join()
    assert isinstance(error, OSError)
    assert not (tmp_path / "checkpoint-2").exists()
    saves.check_last(error)
    assert "OF UPDATE 2, WAS NOT SAVED: no space. The newest one on disk is of update 1." in caplog.text


def test_what_comes_after_a_seal_sees_it(tmp_path):
    saves, seen = Saves(), []
    write(saves, tmp_path, 5, {}, after=lambda: seen.append(saves.sealed_folder))
    saves.join()
    assert seen == [str(tmp_path / "checkpoint-5")]


def test_a_run_that_asked_for_no_checkpoint_misses_none(caplog):
    Saves().check_last(None)
    assert not caplog.records
