"""Which run a checkpoint belongs to, and what that means for finding, rotating and replacing it."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch

from footplate.checkpoint.process import this_process
from footplate.checkpoint.resume import find_checkpoint, relocate_best
from footplate.checkpoint.rotation import (
    find_last_checkpoint,
    make_way,
    remove_leftovers,
    remove_other_runs,
    rotate_checkpoints,
)
from footplate.checkpoint.runs import Origin, find_origin, group_by_run
from footplate.checkpoint.seal import discard, rehearsal_prefix, seal, staging_folder
from footplate.state import TrainerState

WEIGHTS = safetensors.torch.save({"w": torch.ones(10)})


def save(folder, step, run_id=None, saved_at=None, has_manifest=True):
    final = Path(folder, f"checkpoint-{step}")
    staging = staging_folder(final)
    (staging / "model.safetensors").write_bytes(WEIGHTS)
    state = {"global_step": step}
    if run_id is not None:
        attributes = {"run_id": run_id, "saved_at": saved_at}
        state["stateful_callbacks"] = {"RunIdentity": {"args": {}, "attributes": attributes}}
    (staging / "trainer_state.json").write_text(json.dumps(state))
    if has_manifest:
        seal(staging, final)
    else:
        staging.rename(final)
        discard(staging)
    return final


def names_in(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def flip_byte(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


# ---- whose it is ----


def test_a_checkpoint_says_which_run_wrote_it_and_when(tmp_path):
    assert find_origin(save(tmp_path, 1, "a", 12.5)) == Origin("a", 12.5)


def test_one_without_an_identity_is_of_the_run_without_a_name(tmp_path):
    foreign = save(tmp_path, 1, has_manifest=False)
    os.utime(foreign / "trainer_state.json", (7, 7))
    assert find_origin(foreign) == Origin("", 7.0)


def test_weights_that_were_sealed_by_hand_are_of_the_run_without_a_name(tmp_path):
    staging = staging_folder(tmp_path / "checkpoint-1")
    (staging / "model.safetensors").write_bytes(WEIGHTS)
    seal(staging, tmp_path / "checkpoint-1")
    assert find_origin(tmp_path / "checkpoint-1").run_id == ""


@pytest.mark.parametrize("damage", ["gone", "damaged"])
def test_a_manifest_names_the_run_of_a_checkpoint_that_lost_its_state(tmp_path, damage):
    staging = staging_folder(tmp_path / "checkpoint-1")
    (staging / "model.safetensors").write_bytes(WEIGHTS)
    (staging / "trainer_state.json").write_text("{}")
    seal(staging, tmp_path / "checkpoint-1", "mine")
    state = tmp_path / "checkpoint-1" / "trainer_state.json"
    state.unlink() if damage == "gone" else state.write_text("[")
    assert find_origin(tmp_path / "checkpoint-1").run_id == "mine"


def test_nobody_wrote_a_folder_without_state_and_manifest(tmp_path):
    (tmp_path / "checkpoint-1").mkdir()
    (tmp_path / "checkpoint-1" / "notes.txt").write_text("mine")
    assert find_origin(tmp_path / "checkpoint-1") is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"stateful_callbacks": 3}', '{"stateful_callbacks": {"RunIdentity": [1]}}']
)
def test_a_state_that_is_not_what_we_write_raises_nothing(text, tmp_path):
    checkpoint = save(tmp_path, 1, "a", 1.0)
    (checkpoint / "trainer_state.json").write_text(text)
    found = find_origin(checkpoint)
    assert found is None or found.run_id == ""


def test_a_pipe_in_place_of_the_state_is_not_waited_for(tmp_path):
    checkpoint = save(tmp_path, 1, "a", 1.0)
    (checkpoint / "trainer_state.json").unlink()
    os.mkfifo(checkpoint / "trainer_state.json")
    assert find_origin(checkpoint) is None


def test_a_state_is_read_again_when_it_was_replaced(tmp_path):
    assert find_origin(save(tmp_path, 1, "a", 1.0)).run_id == "a"
    assert find_origin(save(tmp_path, 1, "b", 2.0)).run_id == "b"


def test_runs_are_ordered_by_when_they_saved_last(tmp_path):
    paths = [save(tmp_path, 1, "a", 10), save(tmp_path, 2, "b", 20), save(tmp_path, 3, "a", 30)]
    assert [(run.run_id, len(run.checkpoints)) for run in group_by_run(paths)] == [("a", 2), ("b", 1)]


# ---- which is found ----


def test_the_newest_run_is_resumed_whatever_the_steps_of_the_earlier_one(tmp_path, caplog):
    save(tmp_path, 50, "old", 10.0)
    save(tmp_path, 100, "old", 20.0)
    save(tmp_path, 30, "new", 30.0)
    for wanted in (True, "auto"):
        assert find_checkpoint(wanted, str(tmp_path)) == str(tmp_path / "checkpoint-30")
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "checkpoints of 2 runs" in warning
    assert "run new, up to checkpoint-30" in warning
    assert "Not used: run old, up to checkpoint-100" in warning


def test_what_transformers_wrote_is_one_earlier_run(tmp_path):
    for step in (100, 200):
        foreign = save(tmp_path, step, has_manifest=False)
        os.utime(foreign / "trainer_state.json", (1000, 1000))
    assert find_last_checkpoint(tmp_path).endswith("checkpoint-200")
    save(tmp_path, 10, "new", time.time())
    assert find_last_checkpoint(tmp_path).endswith("checkpoint-10")


def test_a_copy_with_new_times_is_still_ordered_by_what_its_states_say(tmp_path):
    save(tmp_path / "run", 30, "new", 30.0)
    save(tmp_path / "run", 100, "old", 20.0)
    shutil.copytree(tmp_path / "run", tmp_path / "copy", copy_function=shutil.copyfile)
    os.utime(tmp_path / "copy" / "checkpoint-100" / "trainer_state.json")
    assert find_last_checkpoint(tmp_path / "copy").endswith("checkpoint-30")


def test_where_the_newest_run_is_damaged_no_earlier_one_is_resumed_instead(tmp_path, caplog):
    save(tmp_path, 100, "old", 10.0)
    flip_byte(save(tmp_path, 30, "new", 30.0) / "model.safetensors")
    assert find_last_checkpoint(tmp_path) is None
    assert "checkpoint-30 (model.safetensors has changed since it was written)" in caplog.text
    assert "run old, up to checkpoint-100" in caplog.text
    with pytest.raises(ValueError, match="none of the last run there is intact"):
        find_checkpoint(True, str(tmp_path))
    assert find_checkpoint("auto", str(tmp_path)) is None


def test_a_checkpoint_without_its_state_hides_no_run(tmp_path):
    save(tmp_path, 10, "new", 10.0)
    (save(tmp_path, 12, "new", 12.0) / "trainer_state.json").unlink()
    assert find_last_checkpoint(tmp_path).endswith("checkpoint-10")


@pytest.mark.parametrize("digits", ["\uff13\uff10", "\u0663", "\u00b2", "1_0", "+3"])
def test_only_plain_digits_are_a_step(digits, tmp_path):
    save(tmp_path, 1, "a", 1.0)
    (tmp_path / "checkpoint-1").rename(tmp_path / f"checkpoint-{digits}")
    assert find_last_checkpoint(tmp_path) is None


def test_overwriting_begins_a_new_run_for_auto_and_obeys_an_explicit_wish(tmp_path, caplog):
    assert find_checkpoint("auto", str(tmp_path), overwrite_output_dir=True) is None
    assert not caplog.records
    save(tmp_path, 10, "old", 10.0)
    assert find_checkpoint("auto", str(tmp_path), overwrite_output_dir=True) is None
    assert "A new run begins although" in caplog.text
    assert find_checkpoint(True, str(tmp_path), overwrite_output_dir=True).endswith("checkpoint-10")


# ---- which is removed ----


def test_rotation_counts_and_removes_only_this_runs_checkpoints(tmp_path):
    for step in (5, 100, 200):
        save(tmp_path, step, "old", 1.0)
    for step in (10, 20, 30):
        save(tmp_path, step, "new", 2.0)
    save(tmp_path, 400, has_manifest=False)
    removed = rotate_checkpoints(tmp_path, 1, run_id="new")
    assert [path.name for path in removed] == ["checkpoint-10", "checkpoint-20"]
    kept = ["checkpoint-100", "checkpoint-200", "checkpoint-30", "checkpoint-400", "checkpoint-5"]
    assert names_in(tmp_path) == kept


def test_overwriting_lets_earlier_runs_go_first_where_there_is_a_limit(tmp_path):
    for step in (100, 200):
        save(tmp_path, step, "old", 1.0)
    (tmp_path / "checkpoint-7").mkdir()
    (tmp_path / "checkpoint-7" / "notes.txt").write_text("mine")
    save(tmp_path, 10, "new", 2.0)
    assert remove_other_runs(tmp_path, None, "new") == []
    assert [path.name for path in remove_other_runs(tmp_path, 2, "new")] == ["checkpoint-100"]
    assert [path.name for path in remove_other_runs(tmp_path, 1, "new")] == ["checkpoint-200"]
    assert names_in(tmp_path) == ["checkpoint-10", "checkpoint-7"]


def test_a_checkpoint_of_an_earlier_run_is_replaced_and_that_is_said_once(tmp_path, caplog):
    for step in (10, 20):
        save(tmp_path, step, "old", 1.0)
        make_way(tmp_path / f"checkpoint-{step}", "new")
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "checkpoint-10 is of an earlier run" in warning
    assert names_in(tmp_path) == ["checkpoint-10", "checkpoint-20"]


def test_a_runs_own_checkpoint_and_an_empty_folder_are_replaced_in_silence(tmp_path, caplog):
    save(tmp_path, 10, "new", 1.0)
    make_way(tmp_path / "checkpoint-10", "new")
    (tmp_path / "checkpoint-20").mkdir()
    make_way(tmp_path / "checkpoint-20", "new")
    make_way(tmp_path / "checkpoint-30", "new")
    assert not caplog.records
    assert names_in(tmp_path) == ["checkpoint-10", "checkpoint-20"]


def test_what_no_run_wrote_is_kept_under_another_name(tmp_path, caplog):
    for contents in ("first", "second"):
        (tmp_path / "checkpoint-6").mkdir()
        (tmp_path / "checkpoint-6" / "notes.txt").write_text(contents)
        make_way(tmp_path / "checkpoint-6", "new")
    (tmp_path / "checkpoint-8").write_text("a file")
    make_way(tmp_path / "checkpoint-8", "new")
    assert names_in(tmp_path) == ["checkpoint-6.kept-1", "checkpoint-6.kept-2", "checkpoint-8.kept-1"]
    assert (tmp_path / "checkpoint-6.kept-2" / "notes.txt").read_text() == "second"
    assert "renamed to checkpoint-6.kept-1" in caplog.text


# ---- what is left behind ----


def leftover(folder, process):
    path = Path(folder, f".checkpoint-3.{process.tag}-1.writing")
    path.mkdir()
    return path


def test_a_folder_that_a_living_process_writes_is_not_removed(tmp_path):
    parent = this_process()._replace(pid=os.getppid())
    stat = Path(f"/proc/{parent.pid}/stat").read_text().rpartition(")")[2].split()
    living = leftover(tmp_path, parent._replace(started=stat[19]))
    dead = leftover(tmp_path, this_process()._replace(started="1"))
    remove_leftovers(tmp_path, is_sole=True)
    assert living.is_dir()
    assert not dead.exists()


def test_what_a_killed_rehearsal_left_is_removed_and_a_living_one_is_not(tmp_path):
    living = tmp_path / f"{rehearsal_prefix()}x1"
    dead = tmp_path / f".check-{this_process()._replace(started='1').tag}.x2"
    other = tmp_path / ".check-mine"
    for path in (living, dead, other):
        path.mkdir()
        (path / "part").write_text("weights")
    remove_leftovers(tmp_path, is_sole=True)
    assert sorted(tmp_path.iterdir()) == sorted([living, other])


def test_a_folder_of_another_machine_is_removed_only_by_a_run_that_is_alone(tmp_path):
    path = leftover(tmp_path, this_process()._replace(host="another"))
    rotate_checkpoints(tmp_path, 1)
    assert path.is_dir()
    remove_leftovers(tmp_path, is_sole=True)
    assert not path.exists()


def test_what_another_trainer_of_this_process_writes_is_not_removed(tmp_path):
    staging = staging_folder(tmp_path / "checkpoint-3")
    remove_leftovers(tmp_path, is_sole=True)
    assert staging.is_dir()
    discard(staging)
    assert not staging.exists()


# ---- moved and copied ----


def test_a_moved_run_finds_its_best_model_beside_it(tmp_path):
    for step in (10, 20):
        save(tmp_path / "now", step, "a", 1.0)
    state = TrainerState(best_model_checkpoint=str(tmp_path / "before" / "checkpoint-10"))
    relocate_best(state, tmp_path / "now" / "checkpoint-20", str(tmp_path / "now"))
    assert state.best_model_checkpoint == str(tmp_path / "now" / "checkpoint-10")


def test_a_copied_run_takes_its_own_best_model(tmp_path):
    for folder in ("original", "copy"):
        for step in (10, 20):
            save(tmp_path / folder, step, "a", 1.0)
    state = TrainerState(best_model_checkpoint=str(tmp_path / "original" / "checkpoint-10"))
    relocate_best(state, tmp_path / "copy" / "checkpoint-20", str(tmp_path / "copy"))
    assert state.best_model_checkpoint == str(tmp_path / "copy" / "checkpoint-10")


def test_a_run_resumed_into_another_folder_finds_its_best_beside_the_checkpoint(tmp_path):
    for step in (10, 20):
        save(tmp_path / "moved", step, "a", 1.0)
    save(tmp_path / "target", 10, "b", 1.0)  # of another run, with the same name
    state = TrainerState(best_model_checkpoint="before/checkpoint-10")
    relocate_best(state, tmp_path / "moved" / "checkpoint-20", str(tmp_path / "target"))
    assert state.best_model_checkpoint == str(tmp_path / "moved" / "checkpoint-10")


def test_a_best_model_that_is_nowhere_else_stays_where_it_was(tmp_path):
    save(tmp_path, 20, "a", 1.0)
    state = TrainerState(best_model_checkpoint="before/checkpoint-10")
    relocate_best(state, tmp_path / "checkpoint-20", str(tmp_path))
    assert state.best_model_checkpoint == "before/checkpoint-10"
