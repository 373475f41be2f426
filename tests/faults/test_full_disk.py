"""A disk that is really full: a small file system in memory, and a process of its own that trains on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from footplate.cli.rehearse import Order

pytestmark = pytest.mark.slow

# what every script begins with: a model of 200 kB, so that some ten checkpoints fill a disk of 3 MB
START = """
import json, os, sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
import torch
import tiny
from footplate import Trainer, TrainerCallback, get_last_checkpoint
from footplate.checkpoint import saves, verify_checkpoint

saves.FIRST_WAIT_SECONDS = 0.05
disk = Path(sys.argv[-1])

class Wide(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(50_000))

    def forward(self, x, labels=None):
        return {{"loss": ((self.weight.mean() - labels) ** 2).mean(), "logits": x}}

class Filling(TrainerCallback):
    "Fills the disk after one update, and makes room again after another."

    def __init__(self, full_at, empty_at=None):
        self.full_at, self.empty_at = full_at, empty_at

    def on_step_end(self, args, state, control, trainer=None, **kwargs):
        time.sleep(0.03)
        if state.global_step == self.full_at:
            trainer._current_run.saves.join()  # what is being written is written whole
            try:
                with open(disk / "filler", "wb", buffering=0) as file:
                    while True:
                        file.write(b"0" * 1000)
            except OSError:
                pass
        if state.global_step == self.empty_at:
            (disk / "filler").unlink()

def build(*callbacks, data=None, cls=Trainer, **settings):
    chosen = dict(max_steps=12, save_strategy="steps", save_steps=4, optim="sgd", report=False)
    args = tiny.arguments(disk / "run", **{{**chosen, **settings}})
    data = tiny.regression_data()
    return cls(Wide(), args, train_dataset=data, eval_dataset=data[:4], callbacks=list(callbacks))

def names():
    found = [path.name for path in (disk / "run").glob("checkpoint-*")]
    return sorted(found, key=lambda name: int(name[11:]))

def show(**values):
    intact = all(verify_checkpoint(disk / "run" / name).is_intact for name in names())
    print(json.dumps({{"names": names(), "intact": intact, **values}}))
"""


def run_on_small_disk(
    folder: Path, script: str, size: str = "3m", command: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a script in a process that sees a file system of that size at `folder/disk`."""
    (folder / "disk").mkdir()
    path = folder / "script.py"
    path.write_text(START.format(tests=str(Path(__file__).parents[1])) + script)
    mount = f"mount -t tmpfs -o size={size} tmpfs {folder / 'disk'}"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True).returncode != 0:
        pytest.skip("this system lets nobody mount a file system; test_faults.py uses a file-size limit")
    words = [sys.executable, *command, str(path), str(folder / "disk")]
    return subprocess.run(
        ["unshare", "-rm", "sh", "-c", f'{mount} && exec "$@"', "sh", *words],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def last_line(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("in_background", [True, False])
def test_the_oldest_of_this_run_make_room_and_best_and_newest_stay(tmp_path, in_background):
    script = f"""
scores = iter([2.0, 1.0, *range(5, 100)])
trainer = build(
    max_steps=30, save_steps=1, eval_strategy="steps", eval_steps=1, load_best_model_at_end=True,
    metric_for_best_model="score", greater_is_better=False, save_in_background={in_background},
)
trainer.compute_metrics = lambda prediction: {{"score": next(scores)}}
trainer.train()
show(best=trainer.state.best_model_checkpoint)
"""
    done = run_on_small_disk(tmp_path, script)
    shown = last_line(done)
    steps = [int(name.split("-")[1]) for name in shown["names"]]
    assert shown["intact"]
    best = int(shown["best"].rsplit("-", 1)[1])
    assert best < 5
    assert best in steps
    assert steps[-1] == 30
    assert 2 < len(steps) < 15
    assert steps[1:] == list(range(steps[1], 31))  # besides the best, the newest
    assert "was removed to make room for a newer checkpoint" in done.stderr
    assert "failed" not in done.stderr


def test_none_is_removed_where_all_are_to_be_kept(tmp_path):
    done = run_on_small_disk(
        tmp_path, "build(max_steps=30, save_steps=1, save_makes_room=False).train(); show()"
    )
    shown = last_line(done)
    steps = [int(name.split("-")[1]) for name in shown["names"]]
    assert steps == list(range(1, len(steps) + 1))
    assert 5 < len(steps) < 20
    assert "THE LAST CHECKPOINT, OF UPDATE 30, WAS NOT SAVED" in done.stderr


@pytest.mark.parametrize("in_background", [True, False])
def test_a_save_that_failed_is_tried_again_until_there_is_room(tmp_path, in_background):
    script = f"""
class Once(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        control.should_save |= state.global_step == 4

build(
    Filling(3, empty_at=6), Once(), max_steps=60, save_steps=1000, save_in_background={in_background}
).train()
show()
"""
    done = run_on_small_disk(tmp_path, script)
    shown = last_line(done)
    first, last = (int(name.split("-")[1]) for name in shown["names"])
    assert shown["intact"]
    # a copy in memory is written as it was; else that update is gone, and a later one is saved
    assert first == 4 if in_background else 6 <= first < 60
    assert last == 60
    assert "checkpoint-4 failed: [Errno 28]" in done.stderr
    assert "checkpoint-4 is tried again in" in done.stderr
    assert "WAS NOT SAVED" not in done.stderr


def test_a_last_save_that_cannot_succeed_leaves_a_usable_trainer(tmp_path):
    script = """
trainer = build(Filling(9), save_makes_room=False)
output = trainer.train()
elsewhere = disk.parent / "elsewhere"
trainer.save_model(str(elsewhere))
loss = trainer.evaluate()["eval_loss"]
last = get_last_checkpoint(str(disk / "run"))
show(step=output.global_step, saved=sorted(os.listdir(elsewhere)), last=last, loss=loss)
"""
    shown = last_line(done := run_on_small_disk(tmp_path, script, size="600k"))
    assert shown["step"] == 12
    assert "model.safetensors" in shown["saved"]
    assert shown["last"].endswith("checkpoint-8")
    assert shown["intact"]
    assert "THE LAST CHECKPOINT, OF UPDATE 12, WAS NOT SAVED" in done.stderr
    assert "The newest one on disk is of update 8" in done.stderr
    assert "checkpoint-12 once more failed" in done.stderr  # it was tried again at the end


def test_the_last_save_succeeds_if_there_is_room_at_the_end(tmp_path):
    script = """
class Emptying(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "train_loss" in logs:  # the last log of all, after the last save
            time.sleep(0.5)
            (disk / "filler").unlink()

build(Filling(9), Emptying(), save_makes_room=False).train()
show()
"""
    shown = last_line(done := run_on_small_disk(tmp_path, script, size="1m"))
    assert shown["names"][-1] == "checkpoint-12"
    assert "WAS NOT SAVED" not in done.stderr


def test_a_best_model_that_could_not_be_saved_does_not_cost_the_last(tmp_path):
    script = """
scores = iter([9.0, 8.0, 1.0, *range(2, 50)])
trainer = build(
    Filling(2), max_steps=5, save_steps=1, eval_strategy="steps", eval_steps=1, save_makes_room=False,
    load_best_model_at_end=True, metric_for_best_model="score", greater_is_better=False,
)
trainer.compute_metrics = lambda prediction: {"score": next(scores)}
output = trainer.train()
show(step=output.global_step)
"""
    shown = last_line(done := run_on_small_disk(tmp_path, script))
    assert shown["step"] == 5
    assert "IS NOT LOADED" in done.stderr or "THE LAST CHECKPOINT" in done.stderr


@pytest.mark.parametrize("program", ["verify-resume", "drive"])
def test_where_footplate_is_the_program_its_exit_code_says_that_the_last_save_failed(tmp_path, program):
    order = Order(folder=str(tmp_path / "disk" / "run")).to_json()
    module = {"verify-resume": ("footplate.cli.rehearse", order), "drive": ("footplate", "drive")}
    script = "build(Filling(9), save_makes_room=False).train()"
    done = run_on_small_disk(tmp_path, script, size="600k", command=("-m", *module[program]))
    assert done.returncode == 1, done.stderr[-2000:]
    assert "THE LAST CHECKPOINT, OF UPDATE 12, WAS NOT SAVED" in done.stderr
