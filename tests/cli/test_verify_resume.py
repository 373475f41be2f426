"""`footplate verify-resume`: real scripts in real processes, ended by real signals."""

from __future__ import annotations

import textwrap

import pytest

from footplate.cli.main import main

SCRIPT = """
import sys
import torch
from torch import nn
from footplate import Trainer, TrainerCallback, TrainingArguments, get_last_checkpoint
from helper import data  # beside the script

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.5), nn.Linear(8, 1))

    def forward(self, x, labels):
        return {"loss": (self.layers(x[:, None])[:, 0] - labels).square().mean()}

class ForgetsItsCount(TrainerCallback):
    count = 0

    def on_pre_optimizer_step(self, args, state, control, optimizer, **kwargs):
        self.count += 1
        for group in optimizer.param_groups:
            group["weight_decay"] = 0.01 * self.count

def main():
    torch.manual_seed(0)
    args = TrainingArguments(
        "not_this_folder", use_cpu=True, logging_steps=1, save_steps=2, disable_tqdm=True,
        per_device_train_batch_size=4, num_train_epochs=2, learning_rate=1e-2,
        save_in_background=False,  # so that it is known what a kill leaves behind
    )
    callbacks = [ForgetsItsCount()] if "--forget" in sys.argv else []
    if "--fail" in sys.argv:
        raise RuntimeError("the script is broken")
    if "--idle" in sys.argv:
        return
    trainer = Trainer(Model(), args, train_dataset=data(), callbacks=callbacks)
    trainer.train(resume_from_checkpoint=get_last_checkpoint("not_this_folder"))
    open("reached_the_end", "w")

if __name__ == "__main__":
    main()
"""
HELPER = """
import torch

def data():
    x = torch.linspace(-1, 1, 22)
    return [{"x": x[i], "labels": 2 * x[i]} for i in range(22)]
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "train.py").write_text(textwrap.dedent(SCRIPT))
    (tmp_path / "scripts" / "helper.py").write_text(textwrap.dedent(HELPER))
    monkeypatch.chdir(tmp_path)
    return "scripts/train.py"


def test_an_exact_resume_after_a_kill_is_confirmed(script, tmp_path, capsys):
    assert main(["verify-resume", "--kill", "--at", "5", "--keep", "kept", script, "--flag"]) == 0
    straight, interrupted, resumed, verdict = capsys.readouterr().out.splitlines()
    assert straight.startswith("straight: 12 updates")
    assert interrupted.startswith("interrupted: SIGKILL after update 5, checkpoint-4 is left")
    assert resumed.startswith("resumed: 12 updates")
    assert verdict.startswith("The resumed run is the straight run")
    kept = sorted(path.name for path in (tmp_path / "kept").iterdir())
    assert kept == ["interrupted", "interrupted.log", "resumed.log", "straight", "straight.log"]
    assert not (tmp_path / "not_this_folder").exists()
    assert not (tmp_path / "reached_the_end").exists()


@pytest.mark.slow
def test_an_exact_resume_after_a_notice_to_end_is_confirmed(script, capsys):
    assert main(["verify-resume", script]) == 0
    assert "interrupted: SIGTERM after update 6, checkpoint-6 is left" in capsys.readouterr().out


@pytest.mark.slow
def test_what_differs_is_named(script, capsys):
    assert main(["verify-resume", "--kill", "--steps", "8", script, "--forget"]) == 1
    verdict = capsys.readouterr().out.splitlines()[-1]
    assert verdict.startswith("The resumed run is not the straight run. First difference: log entry")


@pytest.mark.slow
def test_a_kill_before_the_first_save_says_what_to_do(script, capsys):
    assert main(["verify-resume", "--kill", "--at", "1", script]) == 2
    assert "let it save earlier, or choose a later --at" in capsys.readouterr().err


@pytest.mark.slow
def test_an_interruption_outside_the_run_is_refused(script, capsys):
    assert main(["verify-resume", "--at", "12", script]) == 2
    assert "--at 12 is not inside the run of 12 updates" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "words"), [("--fail", "the script is broken"), ("--idle", "without a call of Trainer.train()")]
)
def test_a_script_that_does_not_train_is_shown(flag, words, script, capsys):
    assert main(["verify-resume", script, flag]) == 2
    errors = capsys.readouterr().err
    assert "The straight run ended with code 1" in errors
    assert words in errors


def test_a_script_that_is_not_there_is_one_line(script, capsys):
    assert main(["verify-resume", "nowhere.py"]) == 2
    assert "'nowhere.py' is no file" in capsys.readouterr().err


def test_a_folder_to_keep_must_be_empty(script, capsys):
    assert main(["verify-resume", "--keep", "scripts", script]) == 2
    assert "--keep scripts is not empty" in capsys.readouterr().err
