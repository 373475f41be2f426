"""A signal to all processes of a run, as schedulers send it, and workers that die: nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from footplate.checkpoint import verify_checkpoint

SCRIPT = """
import os, signal, sys, time
sys.path.insert(0, {tests!r})
import torch
import tiny
from footplate import Trainer

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        worker = torch.utils.data.get_worker_info()
        if {dies} and worker is not None and index == 60:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01)
        return {{"x": torch.tensor([index / 400]), "labels": torch.tensor(1.0)}}

if __name__ == "__main__":
    args = tiny.arguments(
        sys.argv[1], per_device_train_batch_size=2, num_train_epochs=1, dataloader_num_workers=2,
        train_sampling_strategy="sequential", dataloader_multiprocessing_context={context!r},
        save_strategy="steps", save_steps=1000, logging_steps=1,
    )
    trainer = Trainer(tiny.Regression(), args, train_dataset=Slow())
    trainer.train(resume_from_checkpoint="auto")
    print("finished", trainer.state.global_step)
"""


def start(folder: Path, dies: bool = False, context: str = "fork") -> subprocess.Popen[str]:
    script = folder / "script.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parents[1]), dies=dies, context=context))
    return subprocess.Popen(
        [sys.executable, str(script), str(folder / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def sealed(folder: Path) -> list[Path]:
    return [path for path in folder.glob("run/checkpoint-*") if verify_checkpoint(path).is_intact]


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_signal_to_the_whole_group_seals_a_checkpoint(tmp_path, context):
    process = start(tmp_path, context=context)
    journal = tmp_path / "run" / "events.jsonl"
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and not (journal.exists() and b'"log"' in journal.read_bytes()):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 143, output
    assert len(sealed(tmp_path)) == 1, output


def test_a_worker_that_is_killed_costs_no_update(tmp_path):
    process = start(tmp_path, dies=True)
    output, _ = process.communicate(timeout=100)
    assert process.returncode == 1, output
    # which one depends on what torch was doing with it at that moment
    assert any(error in output for error in ("DataLoader worker", "EOFError", "ConnectionResetError")), output
    [checkpoint] = sealed(tmp_path)
    step = int(checkpoint.name.split("-")[1])
    assert step > 0
    process = start(tmp_path)
    output, _ = process.communicate(timeout=100)
    assert "finished 200" in output, output


CLIENT = """
import os, signal, sys, time
sys.path.insert(0, {tests!r})
import tiny
from footplate import Trainer, TrainerCallback

class Client(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        if {number} == signal.SIGTERM:
            signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 3:
            os.kill(os.getpid(), {number})
            time.sleep(0.05)  # a handler that ends the process would do so here

args = tiny.arguments(sys.argv[1], max_steps=6, save_strategy="steps", save_steps=1000)
trainer = Trainer(tiny.Regression(), args, train_dataset=tiny.regression_data(32), callbacks=[Client()])
try:
    trainer.train()
except KeyboardInterrupt:
    print("interrupted after", trainer.state.global_step)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 7), (signal.SIGINT, 0)], ids=["TERM", "INT"])
def test_a_signal_seals_first_and_then_does_what_the_user_expects(tmp_path, number, code):
    script = tmp_path / "client.py"
    script.write_text(CLIENT.format(tests=str(Path(__file__).parents[1]), number=int(number)))
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "run")],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == code, done.stderr  # a client's handler, and `except KeyboardInterrupt`, run
    assert [path.name for path in sealed(tmp_path)] == ["checkpoint-3"], done.stderr
    assert ("interrupted after 3" in done.stdout) == (number == signal.SIGINT)
