"""The checkpoints of a run on their way to the disk."""

from __future__ import annotations

import errno
import threading
from itertools import pairwise
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


# ---- a disk that refuses ----


class Disk:
    """Refuses to write until it is told not to."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.tries = 0

    def save(self, staging: str, values: dict[str, Any] | None = None) -> None:
        self.tries += 1
        if self.error is not None:
            raise self.error
        torch.save(values or {}, Path(staging, "model.bin"))


FULL = OSError(errno.ENOSPC, "no space")


@pytest.fixture
def without_waiting(monkeypatch):
    monkeypatch.setattr("footplate.checkpoint.saves.FIRST_WAIT_SECONDS", 0.0)


@pytest.mark.usefixtures("without_waiting")
def test_a_copy_that_the_disk_refused_is_written_later_as_it_was(tmp_path):
    saves, disk, weights = Saves(), Disk(FULL), torch.ones(2)
    write(saves, tmp_path, 3, {"w": weights}, save_copy=disk.save)
    saves.join()
    weights.zero_()
    disk.error = None
    assert not saves.retry()  # it is written again on the thread: nothing else is to be done
    assert saves.join() is None
    assert saved(tmp_path, 3)["w"].tolist() == [1, 1]
    assert saves.is_last_saved
    assert not saves.retry()
    assert disk.tries == 2


@pytest.mark.usefixtures("without_waiting")
def test_what_was_written_in_place_must_be_saved_anew(tmp_path):
    saves, disk = Saves(), Disk(FULL)
    write(saves, tmp_path, 3, {}, save_model=disk.save, in_background=False)
    saves.join()
    assert saves.retry()
    assert not saves.retry()  # asked for once
    assert disk.tries == 1


@pytest.mark.usefixtures("without_waiting")
def test_a_failure_is_said_before_it_is_mended(tmp_path, caplog):
    saves, disk = Saves(), Disk(FULL)
    write(saves, tmp_path, 3, {}, save_model=disk.save, in_background=False)
    assert saves.retry()  # before the loop has asked for errors: an update took long
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert "checkpoint-3 is tried again" in caplog.text


def test_a_new_try_waits_longer_each_time(tmp_path, monkeypatch):
    clock = 100.0
    monkeypatch.setattr("footplate.checkpoint.saves.time.monotonic", lambda: clock)
    saves, disk = Saves(), Disk(FULL)
    write(saves, tmp_path, 3, {}, save_copy=disk.save)
    tried_at = []
    for _ in range(3000):
        saves.join()
        before = disk.tries
        saves.retry()
        saves.join()
        if disk.tries > before:
            tried_at.append(clock)
        clock += 1
    waits = [later - earlier for earlier, later in pairwise([100.0, *tried_at])]
    assert waits[:7] == [5, 10, 20, 40, 80, 160, 300]
    assert set(waits[7:]) == {300}


@pytest.mark.usefixtures("without_waiting")
@pytest.mark.parametrize("error", [ValueError("cannot be read again"), TypeError("no tensor"), KeyError("x")])
def test_what_time_does_not_mend_is_not_tried_again(tmp_path, error):
    saves, disk = Saves(), Disk(error)
    write(saves, tmp_path, 3, {}, save_copy=disk.save)
    assert saves.join() is error
    assert not saves.retry()
    assert saves.finish(3) is None
    assert disk.tries == 1


@pytest.mark.parametrize("in_background", [True, False])
def test_the_last_one_is_tried_once_more_at_the_end(tmp_path, in_background):
    saves, disk = Saves(), Disk(FULL)
    options = {"save_copy": disk.save, "save_model": disk.save, "in_background": in_background}
    write(saves, tmp_path, 3, {}, **options)
    saves.join()
    assert saves.finish(3) is FULL
    disk.error = None
    assert saves.finish(3) is None
    assert saves.is_last_saved
    assert disk.tries == 3


def test_an_older_state_that_was_not_copied_is_not_written_at_the_end(tmp_path):
    saves, disk = Saves(), Disk(FULL)
    write(saves, tmp_path, 3, {}, save_model=disk.save, in_background=False)
    saves.join()
    disk.error = None
    saves.finish(5)  # the model is at update 5 by now: it is not what checkpoint-3 means
    assert not (tmp_path / "checkpoint-3").exists()


def test_room_is_made_until_the_checkpoint_fits(tmp_path):
    saves, disk, removed = Saves(), Disk(FULL), []

    def make_room() -> bool:
        removed.append(len(removed))
        disk.error = None if len(removed) == 3 else FULL
        return True

    write(saves, tmp_path, 3, {}, save_copy=disk.save, make_room=make_room)
    assert saves.join() is None
    assert saves.is_last_saved
    assert len(removed) == 3


def test_room_is_made_only_for_a_disk_that_is_full(tmp_path):
    saves, removed = Saves(), []

    def make_room() -> bool:
        removed.append(1)
        return True

    for error in (OSError(errno.EIO, "broken"), OSError(errno.EFBIG, "too large"), ValueError("odd")):
        write(saves, tmp_path, 3, {}, save_copy=Disk(error).save, make_room=make_room)
        assert saves.join() is error
    assert removed == []
