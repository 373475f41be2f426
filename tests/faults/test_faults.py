"""What is left of a run's checkpoints after kills, full disks, damaged files and hostile ones."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import tiny
from footplate import Trainer, TrainerCallback, get_last_checkpoint
from footplate.checkpoint import verify_checkpoint
from footplate.checkpoint.publish import publish_checkpoint

KILL_LOOP = Path(__file__).with_name("kill_loop.py")


def build(folder: Path, *callbacks: TrainerCallback, **settings: Any) -> Trainer:
    chosen = {
        "max_steps": 8,
        "save_strategy": "steps",
        "save_steps": 2,
        "logging_steps": 1,
        "learning_rate": 0.05,
    }
    arguments = tiny.arguments(folder, **{**chosen, **settings})
    return Trainer(
        tiny.Regression(), arguments, train_dataset=tiny.regression_data(), callbacks=list(callbacks)
    )


def weights_of(trainer: Trainer) -> list[float]:
    return [value.item() for value in trainer.model.parameters()]


@pytest.mark.parametrize("num_kills", [25, pytest.param(100, marks=pytest.mark.slow)])
def test_kills_lose_nothing(num_kills):
    command = [sys.executable, str(KILL_LOOP), "--kills", str(num_kills), "--seed", "7"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert finished.returncode == 0, finished.stderr[-2000:]
    counts = json.loads(finished.stdout.splitlines()[-1])
    print(counts)
    assert counts["kills"] == num_kills
    assert counts["lost"] == 0
    assert counts["kills_while_writing"] > num_kills // 10
    assert counts["runs_finished"] > num_kills // 100 or num_kills < 100
    assert counts["refused"] > num_kills // 20


@pytest.fixture
def fill_disk(monkeypatch):
    """Call it with steps: while one of their checkpoints is written, no file may grow beyond a few bytes."""
    earlier = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # else the kernel ends the process
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(*steps: int) -> None:
        def publish(final: Any, *args: Any) -> None:
            is_full = int(str(final).rsplit("-", 1)[1]) in steps
            resource.setrlimit(resource.RLIMIT_FSIZE, (16 if is_full else soft, hard))
            try:
                publish_checkpoint(final, *args)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

        monkeypatch.setattr("footplate.checkpoint.saves.publish_checkpoint", publish)

    yield fill
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, earlier)


@pytest.mark.parametrize("in_background", [True, False])
def test_a_disk_that_is_full_for_a_while_costs_only_the_saves_of_that_while(
    tmp_path, caplog, fill_disk, in_background
):
    straight = build(tmp_path / "straight")
    straight.train()
    fill_disk(4, 6)
    quiet = {"logging_strategy": "no", "save_in_background": in_background}
    trainer = build(tmp_path / "full", **quiet)
    trainer.train()
    kept = sorted(path.name for path in (tmp_path / "full").glob("checkpoint-*"))
    assert kept == ["checkpoint-2", "checkpoint-8"]
    assert not list((tmp_path / "full").glob(".checkpoint-*"))
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 2
    assert "checkpoint-4" in errors[0]
    assert "checkpoint-6" in errors[1]
    assert weights_of(trainer) == weights_of(straight)


def test_a_run_whose_last_save_failed_keeps_its_model(tmp_path, fill_disk, caplog):
    fill_disk(8)
    trainer = build(tmp_path / "full", save_in_background=False)
    assert trainer.train().global_step == 8
    assert "OF UPDATE 8, WAS NOT SAVED" in caplog.text
    assert "newest one on disk is of update 6" in caplog.text
    assert Path(get_last_checkpoint(str(tmp_path / "full"))).name == "checkpoint-6"
    trainer.save_model(str(tmp_path / "elsewhere"))
    assert (tmp_path / "elsewhere" / "model.safetensors").is_file()


def test_a_folder_that_vanishes_is_made_again(tmp_path):
    class Remove(TrainerCallback):
        def on_step_end(
            self, args: Any, state: Any, control: Any, trainer: Any = None, **kwargs: Any
        ) -> None:
            if state.global_step == 5:
                trainer._current_run.saves.join()
                subprocess.run(["rm", "-r", args.output_dir], check=True)

    build(tmp_path / "run", Remove()).train()
    assert sorted(path.name for path in (tmp_path / "run").glob("checkpoint-*")) == [
        "checkpoint-6",
        "checkpoint-8",
    ]


FILES = (
    "model.safetensors",
    "optimizer.pt",
    "scheduler.pt",
    "rng_state.pth",
    "trainer_state.json",
    "training_args.bin",
)


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "gone"])
def test_a_damaged_file_sends_the_run_back_to_the_checkpoint_before(tmp_path, caplog, name, damage):
    straight = build(tmp_path / "straight")
    straight.train()
    build(tmp_path / "run").train()
    for later in ("checkpoint-8",):
        subprocess.run(["rm", "-r", str(tmp_path / "run" / later)], check=True)
    file = tmp_path / "run" / "checkpoint-6" / name
    contents = bytearray(file.read_bytes())
    if damage == "gone":
        file.unlink()
    else:
        contents[len(contents) // 2] ^= 1
        file.write_bytes(contents[: len(contents) // 2] if damage == "cut" else contents)
    is_foreign = name == "manifest.json" and damage == "gone"  # as transformers writes it
    expected = "checkpoint-6" if is_foreign else "checkpoint-4"
    assert Path(get_last_checkpoint(str(tmp_path / "run"))).name == expected
    resumed = build(tmp_path / "run")
    resumed.train(resume_from_checkpoint=True)
    assert weights_of(resumed) == weights_of(straight)
    if not is_foreign:
        assert any("checkpoint-6" in record.getMessage() for record in caplog.records)


class Payload:
    """Makes a file when it is unpickled by a reader that trusts it."""

    def __init__(self, trace: Path) -> None:
        self.trace = str(trace)

    def __reduce__(self) -> Any:
        return (os.system, (f"touch {self.trace}",))


@pytest.mark.parametrize("with_manifest", [True, False])
@pytest.mark.parametrize("name", FILES[1:])
def test_a_hostile_file_is_refused_and_runs_nothing(tmp_path, name, with_manifest):
    build(tmp_path / "run", max_steps=4, save_total_limit=1).train()
    folder = tmp_path / "run" / "checkpoint-4"
    trace = tmp_path / "executed"
    (folder / name).write_bytes(pickle.dumps(Payload(trace)))
    if not with_manifest:
        (folder / "manifest.json").unlink()
    if with_manifest:
        assert not verify_checkpoint(folder).is_intact
    # settings that cannot be read safely are left out of the comparison; anything else is refused
    refusal: Any = pytest.raises(Exception, match=r".")
    if name == "training_args.bin":
        refusal = contextlib.suppress(ValueError)
    with refusal:
        build(tmp_path / "run").train(resume_from_checkpoint=str(folder))
    assert not trace.exists()


def test_the_payload_of_these_tests_would_leave_a_file(tmp_path):
    torch.save(Payload(tmp_path / "executed"), tmp_path / "file.pt")
    torch.load(tmp_path / "file.pt", weights_only=False)
    assert (tmp_path / "executed").exists()
