"""Which checkpoints are found, which are trusted and which are removed."""

import json
import logging
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch
from transformers import trainer_utils

from footplate.checkpoint.rotation import (
    find_checkpoint_folders,
    find_checkpoints,
    find_last_checkpoint,
    get_last_checkpoint,
    make_room,
    rotate_checkpoints,
)
from footplate.checkpoint.seal import discard, seal, staging_folder, verify_checkpoint

WEIGHTS = safetensors.torch.save({"w": torch.ones(1000)})


def save(folder, step, has_manifest=True):
    final = Path(folder, f"checkpoint-{step}")
    staging = staging_folder(final)
    (staging / "model.safetensors").write_bytes(WEIGHTS)
    (staging / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    if has_manifest:
        seal(staging, final)
    else:
        staging.rename(final)
        discard(staging)
    return final


def make_checkpoints(folder, *steps, has_manifest=True):
    for age, step in enumerate(steps):
        checkpoint = save(folder, step, has_manifest)
        os.utime(checkpoint, (1000 - age, 1000 - age))  # times that contradict the steps


def flip_byte(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


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
    assert [path.name for path in find_checkpoint_folders(tmp_path)] == [
        "checkpoint-9",
        "checkpoint-20",
        "checkpoint-100",
    ]
    assert get_last_checkpoint(str(tmp_path)) == trainer_utils.get_last_checkpoint(str(tmp_path))


@pytest.mark.parametrize("folder", ["run", "./run", "run/"])
def test_the_last_checkpoint_is_named_as_the_original_names_it(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_checkpoints(tmp_path / "run", 3, 10)
    assert find_last_checkpoint(folder) == trainer_utils.get_last_checkpoint(folder)


def test_no_checkpoint_is_none(tmp_path):
    assert find_last_checkpoint(tmp_path) is None
    assert find_last_checkpoint(tmp_path / "nowhere") is None


@pytest.mark.parametrize("has_manifest", [True, False])
@pytest.mark.parametrize("limit", [None, 0, 1, 2, 3, 9])
@pytest.mark.parametrize("best", [None, 10, 20, 30, 40])
def test_the_originals_checkpoints_remain(limit, best, has_manifest, tmp_path):
    for side in ("ours", "theirs"):
        make_checkpoints(tmp_path / side, 10, 20, 30, 40, has_manifest=has_manifest)
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


def test_what_cannot_be_hidden_is_reported_and_does_not_stop_training(tmp_path, caplog, monkeypatch):
    make_checkpoints(tmp_path, 1, 2, 3)
    rename = os.rename

    def refuse_the_first(source, target):
        if source.name == "checkpoint-1":
            raise OSError("it is in use")
        rename(source, target)

    monkeypatch.setattr(os, "rename", refuse_the_first)
    assert [path.name for path in rotate_checkpoints(tmp_path, 1)] == ["checkpoint-2"]
    assert "checkpoint-1 is no longer needed but cannot be removed: it is in use" in caplog.text
    assert steps_in(tmp_path) == [1, 3]


def test_what_cannot_be_deleted_is_reported_and_does_not_stop_training(tmp_path, caplog, monkeypatch):
    make_checkpoints(tmp_path, 1, 2)

    def refuse(*args, **kwargs):
        raise OSError("it is in use")

    monkeypatch.setattr(shutil, "rmtree", refuse)
    assert [path.name for path in rotate_checkpoints(tmp_path, 1)] == ["checkpoint-1"]
    assert "cannot be deleted: it is in use" in caplog.text
    assert steps_in(tmp_path) == [2]


# ---- damaged ones ----


def test_the_newest_intact_one_is_found_and_what_was_passed_over_is_named_once(tmp_path, caplog):
    make_checkpoints(tmp_path, 1, 2, 3, 4, 5)
    flip_byte(tmp_path / "checkpoint-5" / "model.safetensors")
    (tmp_path / "checkpoint-4" / "manifest.json").write_text("{")
    (tmp_path / "checkpoint-3" / "trainer_state.json").unlink()
    (tmp_path / "checkpoint-6").mkdir()
    assert find_last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-2")
    assert get_last_checkpoint(str(tmp_path)) == str(tmp_path / "checkpoint-2")
    (warning,) = [record.getMessage() for record in caplog.records]
    for part in (
        "checkpoint-6 (trainer_state.json is missing)",
        "checkpoint-5 (model.safetensors has changed since it was written)",
        "checkpoint-4 (manifest.json is damaged",
        "checkpoint-3 (trainer_state.json is missing)",
        f"The newest intact one is {tmp_path / 'checkpoint-2'}",
    ):
        assert part in warning
    assert "checkpoint-1 " not in warning


def test_without_any_intact_one_there_is_none_and_a_warning(tmp_path, caplog):
    make_checkpoints(tmp_path, 1)
    flip_byte(tmp_path / "checkpoint-1" / "model.safetensors")
    assert find_last_checkpoint(tmp_path) is None
    assert "No intact one is left" in caplog.text


def test_intact_checkpoints_are_found_in_silence(tmp_path, caplog):
    make_checkpoints(tmp_path, 1, 2)
    (tmp_path / ".checkpoint-3.writing").mkdir()
    (tmp_path / ".checkpoint-1.removing").mkdir()
    with caplog.at_level(logging.DEBUG):
        assert find_last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-2")
    assert not caplog.records
    assert len(list(tmp_path.iterdir())) == 4  # looking removes nothing: a run may be writing


def test_an_older_damaged_one_is_not_even_looked_at(tmp_path, caplog):
    make_checkpoints(tmp_path, 1, 2)
    flip_byte(tmp_path / "checkpoint-1" / "model.safetensors")
    assert find_last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-2")
    assert not caplog.records


def test_older_ones_that_were_trimmed_or_damaged_count_for_rotation(tmp_path):
    make_checkpoints(tmp_path, 1, 2, 3, 4)
    (tmp_path / "checkpoint-4" / "model.safetensors").write_bytes(WEIGHTS[:-1])
    (tmp_path / "checkpoint-2" / "manifest.json").write_text("")
    removed = rotate_checkpoints(tmp_path, 1)
    assert [path.name for path in removed] == ["checkpoint-1", "checkpoint-2"]
    left = [path.name for path in find_checkpoint_folders(tmp_path)]
    assert left == ["checkpoint-3", "checkpoint-4"]  # the newest intact one, and what is newer
    assert find_last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-3")


def test_what_this_run_sealed_counts_whatever_is_left_of_it(tmp_path):
    make_checkpoints(tmp_path, 1, 2, 3)
    for name in ("manifest.json", "trainer_state.json"):
        (tmp_path / "checkpoint-1" / name).unlink()
    assert rotate_checkpoints(tmp_path, 2) == []  # without its marks it is a folder of the user
    removed = rotate_checkpoints(tmp_path, 2, sealed={"checkpoint-1", "checkpoint-2", "checkpoint-3"})
    assert [path.name for path in removed] == ["checkpoint-1"]


# ---- a full disk ----


def save_of_run(folder, step, run_id):
    final = Path(folder, f"checkpoint-{step}")
    staging = staging_folder(final)
    (staging / "model.safetensors").write_bytes(WEIGHTS)
    seal(staging, final, run_id)


def test_the_oldest_unneeded_checkpoints_of_this_run_make_room(tmp_path, caplog):
    for step, run_id in ((1, "other"), (2, "mine"), (3, "mine"), (4, "mine"), (5, "other"), (6, "mine")):
        save_of_run(tmp_path, step, run_id)
    (tmp_path / "checkpoint-0").mkdir()
    best = [str(tmp_path / "checkpoint-3")]
    assert make_room(tmp_path, best, "mine")
    assert steps_in(tmp_path) == [1, 3, 4, 5, 6]
    assert "checkpoint-2 was removed to make room" in caplog.text
    assert make_room(tmp_path, best, "mine")
    assert not make_room(tmp_path, best, "mine")  # what is left is the best and the newest
    assert steps_in(tmp_path) == [1, 3, 5, 6]
    assert (tmp_path / "checkpoint-0").is_dir()


def test_the_newest_intact_one_never_makes_room(tmp_path):
    for step in (1, 2, 3):
        save_of_run(tmp_path, step, "mine")
    flip_byte(tmp_path / "checkpoint-3" / "model.safetensors")
    assert make_room(tmp_path, (), "mine")
    assert not make_room(tmp_path, (), "mine")
    assert [path.name for path in find_checkpoint_folders(tmp_path)] == ["checkpoint-2", "checkpoint-3"]


@pytest.mark.parametrize("keep", [[], ["checkpoint-25"]])
def test_a_newest_one_with_a_flipped_byte_does_not_cost_the_intact_one(keep, tmp_path):
    make_checkpoints(tmp_path, 20, 30)
    flip_byte(tmp_path / "checkpoint-30" / "model.safetensors")
    save(tmp_path, 25)  # the run went on from 20, since 30 is damaged
    rotate_checkpoints(tmp_path, 1, keep)
    assert find_last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-25")
    assert [path.name for path in find_checkpoint_folders(tmp_path)] == ["checkpoint-25", "checkpoint-30"]


def test_where_all_are_damaged_none_is_removed(tmp_path):
    make_checkpoints(tmp_path, 1, 2, 3)
    for step in (1, 2, 3):
        flip_byte(tmp_path / f"checkpoint-{step}" / "model.safetensors")
    assert rotate_checkpoints(tmp_path, 1) == []
    assert len(find_checkpoint_folders(tmp_path)) == 3


# ---- what dead runs leave ----


@pytest.mark.parametrize("limit", [None, 5])
def test_what_dead_runs_left_is_removed_with_or_without_a_limit(limit, tmp_path):
    make_checkpoints(tmp_path, 1, 2)
    for name in (".checkpoint-3.writing", ".checkpoint-1.replaced", ".checkpoint-0.removing"):
        shutil.copytree(tmp_path / "checkpoint-1", tmp_path / name)
    others = [".checkpoint-3.mine", ".checkpoint-x.writing", ".other-3.writing", "checkpoint-3.writing"]
    for name in others:
        (tmp_path / name).mkdir()
    rotate_checkpoints(tmp_path, limit)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"checkpoint-1", "checkpoint-2", *others}


def test_a_checkpoint_moved_aside_is_counted_under_its_name(tmp_path):
    make_checkpoints(tmp_path, 1, 2)
    (tmp_path / "checkpoint-2").rename(tmp_path / ".checkpoint-2.replaced")
    rotate_checkpoints(tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-2"]


def test_a_checkpoint_moved_aside_that_cannot_be_renamed_is_not_deleted(tmp_path, monkeypatch, caplog):
    make_checkpoints(tmp_path, 1)
    (tmp_path / "checkpoint-1").rename(tmp_path / ".checkpoint-1.replaced")

    def refuse(*args):
        raise OSError("read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", refuse)
        rotate_checkpoints(tmp_path, 1)
        assert find_last_checkpoint(tmp_path) is None
    assert ".checkpoint-1.replaced cannot be renamed back to checkpoint-1" in caplog.text
    assert find_last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-1")


# ---- kill -9 ----


def run_until_killed(folder, first_step, seed, pipe):
    """Seal, report and rotate without end; now and then a step is saved once more."""
    generator = random.Random(seed)
    step = first_step
    while True:
        save(folder, step)
        os.write(pipe, step.to_bytes(4, "little"))
        rotate_checkpoints(folder, 2, [f"checkpoint-{step}"] if generator.random() < 0.5 else [])
        step += generator.random() < 0.7


def kill_one_run(folder, first_step, seed, seconds):
    """The last step that the run reported as sealed before it was killed; None if it came to none."""
    reader, pipe = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            run_until_killed(folder, first_step, seed, pipe)
        finally:
            os._exit(1)
    os.close(pipe)
    time.sleep(random.Random(seed).uniform(0, seconds))
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    with open(reader, "rb") as file:
        reported = file.read()
    assert os.WIFSIGNALED(status), "the run failed before it was killed"
    return int.from_bytes(reported[-4:], "little") if reported else None


def test_runs_killed_at_random_moments_leave_the_newest_sealed_checkpoint(tmp_path):
    seed = random.randrange(10**6)
    print(f"seeds {seed} to {seed + 59}")
    newest = first = 1
    num_leftovers = 0
    save(tmp_path, 1)
    start = time.perf_counter()
    save(tmp_path, 1)
    seconds = 6 * (time.perf_counter() - start)  # so that on any machine a run seals a few
    for kill in range(60):
        reported = kill_one_run(tmp_path, first, seed + kill, seconds)
        num_leftovers += any(path.name.startswith(".") for path in tmp_path.iterdir())
        seconds *= 1.0 if reported else 1.1  # a machine that has become busier since
        newest = max(newest, reported or 0)
        found = find_last_checkpoint(tmp_path)
        assert found is not None, seed + kill
        step = int(found.rsplit("-", 1)[1])
        assert newest <= step <= newest + 1, seed + kill  # + 1: sealed, and killed before it could say so
        assert json.loads(Path(found, "trainer_state.json").read_text())["global_step"] == step
        assert verify_checkpoint(found).has_manifest
        newest = step
        first = step + kill % 2  # every other run comes to a step that is there already
    rotate_checkpoints(tmp_path, 2)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    print(f"60 kills, {newest} steps sealed, {num_leftovers} with something half done")
    assert newest > 3
    assert num_leftovers > 5
