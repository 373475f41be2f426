"""Which checkpoints are found and which are removed."""

import os
import shutil

import pytest
from transformers import trainer_utils

from footplate.checkpoint import (
    find_checkpoints,
    find_last_checkpoint,
    get_last_checkpoint,
    rotate_checkpoints,
)


def make_checkpoints(folder, *steps):
    for age, step in enumerate(steps):
        checkpoint = folder / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "weights").write_text(str(step))
        os.utime(checkpoint, (1000 - age, 1000 - age))  # times that contradict the steps


def steps_in(folder):
    return [int(path.name.split("-")[1]) for path in find_checkpoints(folder)]


def test_checkpoints_are_ordered_by_step_not_by_name_or_time(tmp_path):
    make_checkpoints(tmp_path, 9, 100, 20)
    (tmp_path / "checkpoint-1000").write_text("a file")
    for name in (
        "checkpoint-",
        "checkpoint-x",
        "checkpoint-5-old",
        "my-checkpoint-7",
        ".checkpoint-8.removing",
    ):
        (tmp_path / name).mkdir()
    assert steps_in(tmp_path) == [9, 20, 100]
    assert get_last_checkpoint(str(tmp_path)) == trainer_utils.get_last_checkpoint(str(tmp_path))


@pytest.mark.parametrize("folder", ["run", "./run", "run/"])
def test_the_last_checkpoint_is_named_as_the_original_names_it(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_checkpoints(tmp_path / "run", 3, 10)
    assert find_last_checkpoint(folder) == trainer_utils.get_last_checkpoint(folder)


def test_no_checkpoint_is_none(tmp_path):
    assert find_last_checkpoint(tmp_path) is None
    assert find_last_checkpoint(tmp_path / "nowhere") is None


@pytest.mark.parametrize("limit", [None, 0, 1, 2, 3, 9])
@pytest.mark.parametrize("best", [None, 10, 20, 30, 40])
def test_the_originals_checkpoints_remain(limit, best, tmp_path):
    for side in ("ours", "theirs"):
        make_checkpoints(tmp_path / side, 10, 20, 30, 40)
    ours = [str(tmp_path / "ours" / f"checkpoint-{best}")] if best else []
    rotate_checkpoints(tmp_path / "ours", limit, keep=ours)
    theirs = str(tmp_path / "theirs" / f"checkpoint-{best}") if best else None
    trainer_utils.rotate_checkpoints(str(tmp_path / "theirs"), limit, theirs)
    assert steps_in(tmp_path / "ours") == steps_in(tmp_path / "theirs")
    assert steps_in(tmp_path / "ours")[-1] == 40


def test_the_removed_are_returned_and_gone(tmp_path):
    make_checkpoints(tmp_path, 1, 2, 3)
    assert [path.name for path in rotate_checkpoints(tmp_path, 1)] == ["checkpoint-1", "checkpoint-2"]
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-3"]


def test_the_best_survives_a_move_of_its_folder(tmp_path):
    make_checkpoints(tmp_path, 1, 2, 3)
    rotate_checkpoints(tmp_path, 1, keep=["elsewhere/before/checkpoint-1"])
    assert steps_in(tmp_path) == [1, 3]


def test_a_removal_that_is_interrupted_leaves_no_half_checkpoint(tmp_path, monkeypatch):
    make_checkpoints(tmp_path, 1, 2)

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            rotate_checkpoints(tmp_path, 1)
    assert steps_in(tmp_path) == [2]
    assert len(list(tmp_path.iterdir())) == 2
    rotate_checkpoints(tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-2"]


def test_a_link_is_removed_and_what_it_points_to_stays(tmp_path):
    make_checkpoints(tmp_path / "run", 2)
    make_checkpoints(tmp_path / "other", 1)
    (tmp_path / "run" / "checkpoint-1").symlink_to(tmp_path / "other" / "checkpoint-1")
    rotate_checkpoints(tmp_path / "run", 1)
    assert steps_in(tmp_path / "run") == [2]
    assert steps_in(tmp_path / "other") == [1]
    assert len(list((tmp_path / "run").iterdir())) == 1


def test_what_cannot_be_removed_is_reported_and_does_not_stop_training(tmp_path, caplog):
    make_checkpoints(tmp_path, 1, 2, 3)
    (tmp_path / ".checkpoint-1.removing").write_text("in the way, and no folder")
    removed = rotate_checkpoints(tmp_path, 1)
    assert [path.name for path in removed] == ["checkpoint-2"]
    assert "checkpoint-1 is beyond save_total_limit but cannot be removed" in caplog.text
    assert "cannot be deleted" in caplog.text
