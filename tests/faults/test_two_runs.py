"""Two runs in one folder: at the same time, one after the other, moved and copied; with real processes."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import tiny
from footplate import Trainer, TrainerCallback, get_last_checkpoint
from footplate.checkpoint import verify_checkpoint
from footplate.checkpoint.lock import LOCK_NAME, FolderInUse
from footplate.checkpoint.rotation import rotate_checkpoints
from footplate.checkpoint.seal import discard, seal, staging_folder
from footplate.integrations.journal import read_events

SCRIPT = """
import sys, time
sys.path.insert(0, {tests!r})
import tiny
from footplate import Trainer, TrainerCallback

class Slow(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        print(state.global_step, flush=True)
        time.sleep({pause})

args = tiny.arguments({folder!r}, max_steps=1000, save_strategy="steps", save_steps=1, logging_steps=1,
                      save_total_limit=2, dataloader_num_workers={num_workers})
Trainer(tiny.Regression(), args, train_dataset=tiny.regression_data(), callbacks=[Slow()]).train()
"""


def start_run(folder: Path, pause: float = 0.05, num_workers: int = 0) -> subprocess.Popen[str]:
    tests = str(Path(__file__).parents[1])
    code = SCRIPT.format(tests=tests, folder=str(folder), pause=pause, num_workers=num_workers)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def wait_for_step(process: subprocess.Popen[str], step: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip().isdigit() and int(line) >= step:
            return
    raise AssertionError(process.communicate()[1][-2000:])


def build(folder: Any, *callbacks: TrainerCallback, **settings: Any) -> Trainer:
    chosen = {"max_steps": 8, "save_strategy": "steps", "save_steps": 2, "learning_rate": 0.05}
    arguments = tiny.arguments(folder, **{**chosen, **settings})
    data = tiny.regression_data()
    return Trainer(
        tiny.Regression(), arguments, train_dataset=data, eval_dataset=data[:8], callbacks=list(callbacks)
    )


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("checkpoint-"))


def contents_of(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name != LOCK_NAME}


def weights_in(checkpoint: Path) -> dict[str, float]:
    return {key: value.item() for key, value in load_file(checkpoint / "model.safetensors").items()}


# ---- at the same time ----


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("running")
    process = start_run(folder, pause=0.2)
    wait_for_step(process, 2)
    yield folder, process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("resume", [None, True, "auto"])
def test_a_second_run_is_refused_before_it_writes_anything(running, resume):
    folder, process = running
    trainer = build(folder)
    os.kill(process.pid, signal.SIGSTOP)  # so that nothing but the second run could write
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)  # until all of its threads have stopped
    try:
        before = contents_of(folder)
        with pytest.raises(FolderInUse, match=f"is in use by process {process.pid} on .*, which began"):
            trainer.train(resume_from_checkpoint=resume)
        assert contents_of(folder) == before
    finally:
        os.kill(process.pid, signal.SIGCONT)


def test_the_first_run_goes_on_undisturbed(running):
    folder, process = running
    wait_for_step(process, 5)
    assert process.poll() is None
    assert get_last_checkpoint(folder) is not None


def test_evaluation_in_the_folder_of_a_run_is_possible(running):
    folder, _ = running
    metrics = build(folder).evaluate()
    assert metrics["eval_loss"] > 0


def test_a_refused_trainer_can_train_elsewhere(running, tmp_path):
    trainer = build(running[0])
    with pytest.raises(FolderInUse):
        trainer.train()
    trainer.args.output_dir = str(tmp_path)
    trainer.train()
    assert names_in(tmp_path) == [f"checkpoint-{step}" for step in (2, 4, 6, 8)]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_killed_run_is_resumed_at_once(tmp_path, num_workers):
    process = start_run(tmp_path, num_workers=num_workers)
    wait_for_step(process, 3)
    process.kill()  # not waited for: its parent has not noticed, and its workers live on for a moment
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    found = int(Path(get_last_checkpoint(tmp_path)).name.split("-")[1])
    start = time.monotonic()
    trainer = build(tmp_path, max_steps=found + 2, dataloader_num_workers=num_workers)
    trainer.train(resume_from_checkpoint=True)
    assert time.monotonic() - start < 20
    assert trainer.state.global_step == found + 2
    process.communicate()
    assert not (tmp_path / LOCK_NAME).exists()


FILES = ("model.safetensors", *(f"part-{number}.safetensors" for number in range(5)))


def write_again_and_again(folder: Path, number: int) -> None:
    """Seal checkpoints whose files all hold the same number, without any lock, and rotate as a run does."""
    chance = random.Random(number)
    for step in [1, 2, 3] * 15:
        final = folder / f"checkpoint-{step}"
        try:
            staging = staging_folder(final)
            for name in FILES:
                save_file({"w": torch.full((1000,), number)}, staging / name)
                time.sleep(chance.uniform(0, 0.003))
            (staging / "trainer_state.json").write_text(json.dumps({"number": number}))
            seal(staging, final)
        except Exception:  # both renamed at once
            discard(staging)
        rotate_checkpoints(folder, 2)


def test_whatever_became_of_the_lock_two_runs_never_seal_half_of_each_others_files(tmp_path):
    children = []
    for number in range(2):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                logging.disable()
                write_again_and_again(tmp_path, number)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    num_seen, left = 0, set(children)
    while left:
        ended = {child: os.waitpid(child, os.WNOHANG) for child in left}
        assert all(status == 0 for _, status in ended.values())
        left = {child for child, (pid, _) in ended.items() if not pid}
        for path in tmp_path.glob("checkpoint-*"):
            with contextlib.suppress(FileNotFoundError):  # removed while it was read
                assert len(set(read_together(path, *FILES))) == 1
                num_seen += 1
    assert num_seen > 10
    for name in names_in(tmp_path):
        assert verify_checkpoint(tmp_path / name).is_intact
        assert len(set(read_together(tmp_path / name, *FILES))) == 1
    rotate_checkpoints(tmp_path, 2)
    assert not list(tmp_path.glob(".checkpoint-*"))


def read_together(folder: Path, *names: str) -> list[bytes]:
    """Files of one and the same folder, though another one may take its name meanwhile."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        found = []
        for name in names:
            with open(os.open(name, os.O_RDONLY, dir_fd=descriptor), "rb") as file:
                found.append(file.read())
        return found
    except FileNotFoundError:
        is_published = os.path.samestat(os.stat(folder), os.fstat(descriptor))
        assert not is_published, f"{folder.name} was sealed without some of its files"
        raise
    finally:
        os.close(descriptor)


# ---- in one process ----


def test_two_trainers_of_one_process_train_in_turn(tmp_path):
    first, second = build(tmp_path), build(tmp_path)
    for trainer in (first, second, first, second):
        trainer.train()
    assert not (tmp_path / LOCK_NAME).exists()


def test_a_trainer_inside_anothers_callback_does_not_wait_for_it(tmp_path):
    class Inner(TrainerCallback):
        def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
            build(tmp_path, max_steps=2).train()

    build(tmp_path, Inner()).train()
    assert not (tmp_path / LOCK_NAME).exists()


def test_an_error_in_training_lets_the_next_run_in(tmp_path):
    class Fail(TrainerCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        build(tmp_path, Fail()).train()
    assert not (tmp_path / LOCK_NAME).exists()


# ---- one after the other ----


def test_a_new_run_in_an_old_folder_is_resumed_and_rotated_by_itself(tmp_path, caplog):
    build(tmp_path, max_steps=20).train()  # its last checkpoint is of step 20
    new = build(tmp_path, max_steps=5, save_steps=1, save_total_limit=2)
    new.train()
    assert names_in(tmp_path) == sorted(f"checkpoint-{s}" for s in (4, 5, 6, 8, 10, 12, 14, 16, 18, 20))
    assert Path(get_last_checkpoint(tmp_path)).name == "checkpoint-5"
    resumed = build(tmp_path, max_steps=7, save_steps=1, save_total_limit=2)
    with caplog.at_level(logging.WARNING):
        resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 7
    assert resumed._current_run.identity.run_id == new._current_run.identity.run_id
    # 6 was of the old run and is replaced; 4 and 5 were of this run and beyond its limit
    assert names_in(tmp_path) == sorted(f"checkpoint-{s}" for s in (6, 7, 8, 10, 12, 14, 16, 18, 20))
    assert "has checkpoints of 2 runs" in caplog.text
    assert any("is of an earlier run in this folder and is replaced" in text for text in caplog.messages)


def test_what_transformers_left_in_the_folder_is_neither_resumed_nor_removed(tmp_path):
    import transformers

    theirs = tiny.build_trainer(
        tmp_path,
        tiny.Regression(),
        tiny.regression_data(),
        library=transformers,
        max_steps=20,
        save_strategy="steps",
        save_steps=10,
    )
    theirs.train()
    build(tmp_path, max_steps=4, save_total_limit=1).train()
    assert names_in(tmp_path) == ["checkpoint-10", "checkpoint-20", "checkpoint-4"]
    resumed = build(tmp_path, max_steps=6, save_total_limit=1)
    resumed.train(resume_from_checkpoint="auto")
    assert resumed._current_run.plan.first_step == 4
    assert names_in(tmp_path) == ["checkpoint-10", "checkpoint-20", "checkpoint-6"]


def test_a_folder_of_the_users_own_survives_a_run_that_comes_to_its_step(tmp_path):
    (tmp_path / "checkpoint-6").mkdir()
    (tmp_path / "checkpoint-6" / "notes.txt").write_text("mine")
    build(tmp_path, save_total_limit=1).train()
    assert names_in(tmp_path) == ["checkpoint-6.kept-1", "checkpoint-8"]
    assert (tmp_path / "checkpoint-6.kept-1" / "notes.txt").read_text() == "mine"


def test_overwriting_starts_anew_and_lets_the_old_run_go_where_there_is_a_limit(tmp_path):
    build(tmp_path, max_steps=20).train()
    (tmp_path / "notes.txt").write_text("mine")
    trainer = build(tmp_path, max_steps=4, save_total_limit=2, overwrite_output_dir=True)
    trainer.train(resume_from_checkpoint="auto")
    assert trainer._current_run.plan.first_step == 0
    assert names_in(tmp_path) == ["checkpoint-2", "checkpoint-4"]
    assert (tmp_path / "notes.txt").exists()


def test_overwriting_without_a_limit_removes_nothing(tmp_path):
    build(tmp_path, max_steps=20).train()
    build(tmp_path, max_steps=4, overwrite_output_dir=True).train()
    assert len(names_in(tmp_path)) == 10
    assert Path(get_last_checkpoint(tmp_path)).name == "checkpoint-4"


# ---- moved, copied, and in another working folder ----

BEST = {
    "eval_strategy": "steps",
    "eval_steps": 2,
    "metric_for_best_model": "loss",
    "greater_is_better": True,  # so that the first one is the best
    "load_best_model_at_end": True,
}


def finished(folder: Path) -> None:
    """A run whose best checkpoint is of step 2."""
    trainer = build(folder, **{**BEST, "load_best_model_at_end": False})
    trainer.train()
    assert Path(trainer.state.best_model_checkpoint or "").name == "checkpoint-2"


def weights_of(trainer: Trainer) -> dict[str, float]:
    return {name: value.item() for name, value in trainer.model.state_dict().items()}


def test_a_moved_run_loads_its_best_model(tmp_path):
    finished(tmp_path / "before")
    shutil.move(tmp_path / "before", tmp_path / "after")
    resumed = build(tmp_path / "after", **BEST)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.best_model_checkpoint == str(tmp_path / "after" / "checkpoint-2")
    assert weights_of(resumed) == weights_in(tmp_path / "after" / "checkpoint-2")


def test_a_copied_run_loads_its_own_best_model_and_not_the_originals(tmp_path):
    finished(tmp_path / "original")
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    for path in (tmp_path / "original" / "checkpoint-2").iterdir():
        path.write_bytes(b"changed since")
    resumed = build(tmp_path / "copy", **BEST)
    resumed.train(resume_from_checkpoint=True)
    assert weights_of(resumed) == weights_in(tmp_path / "copy" / "checkpoint-2")


class Wander(TrainerCallback):
    """Changes the working folder in another thread, as a tracker's client may."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 3:
            thread = threading.Thread(target=os.chdir, args=(self.folder,))
            thread.start()
            thread.join()


def test_another_working_folder_sends_no_checkpoint_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "start").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "start")
    trainer = build("run", Wander(tmp_path / "elsewhere"), save_total_limit=1, **BEST)
    trainer.train()
    assert trainer.args.output_dir == "run"
    assert names_in(tmp_path / "start" / "run") == ["checkpoint-2", "checkpoint-8"]
    assert not list((tmp_path / "elsewhere").rglob("checkpoint-*"))
    assert weights_of(trainer) == weights_in(tmp_path / "start" / "run" / "checkpoint-2")
    assert trainer.state.best_model_checkpoint == os.path.join("run", "checkpoint-2")
    trainer.save_model()
    trainer.save_state()
    assert (tmp_path / "start" / "run" / "model.safetensors").is_file()
    assert (tmp_path / "start" / "run" / "trainer_state.json").is_file()
    assert not list((tmp_path / "elsewhere").iterdir())
    saved = [
        event["folder"]
        for event in read_events(tmp_path / "start" / "run" / "events.jsonl")
        if event["kind"] == "save"
    ]
    assert saved == ["checkpoint-2", "checkpoint-4", "checkpoint-6", "checkpoint-8"]


def test_every_checkpoint_knows_its_run(tmp_path):
    trainer = build(tmp_path)
    trainer.train()
    for name in names_in(tmp_path):
        state = json.loads((tmp_path / name / "trainer_state.json").read_text())
        identity = state["stateful_callbacks"]["RunIdentity"]["attributes"]
        assert identity["run_id"] == trainer._current_run.identity.run_id
        assert abs(identity["saved_at"] - time.time()) < 600
