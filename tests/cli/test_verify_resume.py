"""`footplate verify-resume`: real scripts in real processes, ended by real signals."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from footplate.cli.main import main
from footplate.cli.rehearse import Start
from footplate.cli.verify_resume import compare_starts

START = Path(__file__).parents[2] / "docs" / "start.md"

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
    if "--unseeded" in sys.argv:
        pass
    elif "--other-weights" in sys.argv:
        torch.seed()
    else:
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
    rows = [{**row, "labels": torch.rand(())} for row in data()] if "--other-data" in sys.argv else data()
    trainer = Trainer(Model(), args, train_dataset=rows, callbacks=callbacks)
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


@pytest.mark.slow
def test_an_exact_resume_after_a_kill_is_confirmed(script, tmp_path, capsys):
    assert main(["verify-resume", "--kill", "--at", "5", "--keep", "kept", script, "--flag"]) == 0
    straight, interrupted, resumed, verdict = capsys.readouterr().out.splitlines()
    assert straight.startswith("straight: 12 updates")
    assert interrupted.startswith("interrupted: SIGKILL after update 5, checkpoint-4 remains")
    assert resumed.startswith("resumed: 12 updates")
    assert verdict.startswith("The resumed run equals the straight run")
    kept = sorted(path.name for path in (tmp_path / "kept").iterdir())
    assert kept == ["interrupted", "interrupted.log", "resumed.log", "straight", "straight.log"]
    assert not (tmp_path / "not_this_folder").exists()
    assert not (tmp_path / "reached_the_end").exists()


@pytest.mark.slow
def test_an_exact_resume_after_a_notice_to_end_is_confirmed(script, capsys):
    assert main(["verify-resume", script]) == 0
    assert "interrupted: SIGTERM after update 6, checkpoint-6 remains" in capsys.readouterr().out


@pytest.mark.slow
def test_what_differs_is_named(script, capsys):
    assert main(["verify-resume", "--kill", "--steps", "8", script, "--forget"]) == 1
    verdict = capsys.readouterr().out.splitlines()[-1]
    assert verdict.startswith("The resumed run differs from the straight run. First difference: log entry")


@pytest.mark.slow
def test_a_kill_before_the_first_save_says_what_to_do(script, capsys):
    assert main(["verify-resume", "--kill", "--at", "1", script]) == 2
    assert "let it save earlier, or choose a later --at" in capsys.readouterr().err


@pytest.mark.slow
def test_an_interruption_outside_the_run_is_refused(script, capsys):
    assert main(["verify-resume", "--at", "12", script]) == 2
    assert "--at 12 is not inside the run of 12 updates" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "words"), [("--fail", "the script is broken"), ("--idle", "without calling Trainer.train()")]
)
def test_a_script_that_does_not_train_is_shown(flag, words, script, capsys):
    assert main(["verify-resume", script, flag]) == 2
    errors = capsys.readouterr().err
    assert "The straight run ended with code 1" in errors
    assert words in errors


def test_a_script_that_is_not_there_is_one_line(script, capsys):
    assert main(["verify-resume", "nowhere.py"]) == 2
    assert "'nowhere.py' is not a file" in capsys.readouterr().err


def test_a_folder_to_keep_must_be_empty(script, capsys):
    assert main(["verify-resume", "--keep", "scripts", script]) == 2
    assert "--keep scripts is not empty" in capsys.readouterr().err


# ---- scripts that do not seed ----


@pytest.mark.slow
def test_the_first_run_of_the_docs_is_verified_with_its_seed_and_not_without(tmp_path):
    """The real command on the text of the page."""
    (example,) = re.findall(r"## A first run\n.*?```python\n(.*?)```", START.read_text(), re.DOTALL)
    assert example.count("set_seed(1)\n") == 1
    (tmp_path / "train.py").write_text(example)
    (tmp_path / "unseeded.py").write_text(example.replace("set_seed(1)\n", ""))
    seeded, unseeded = (
        subprocess.run(
            [sys.executable, "-m", "footplate", "verify-resume", "--steps", "60", name],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        for name in ("train.py", "unseeded.py")
    )
    assert seeded.returncode == 0, seeded.stdout + seeded.stderr
    assert "The resumed run equals the straight run to the bit" in seeded.stdout
    assert "does not seed" not in seeded.stdout
    assert unseeded.returncode == 1
    assert "does not seed before it builds its model" in unseeded.stdout
    assert "makes its training data at random and does not seed it" in unseeded.stdout
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_weights_that_no_seed_reaches_are_named_as_the_reason(script, capsys):
    assert main(["verify-resume", "--steps", "4", script, "--other-weights"]) == 1
    note, verdict = capsys.readouterr().out.splitlines()[-2:]
    assert note.startswith("The script begins with other weights at every start")
    assert "footplate.set_seed(...)" in note
    assert verdict.startswith("The resumed run differs from the straight run")


@pytest.mark.slow
def test_data_made_at_random_is_named_as_the_reason(script, capsys):
    """A real restart would go on with other data."""
    assert main(["verify-resume", "--steps", "8", script, "--unseeded", "--other-data"]) == 1
    shown = capsys.readouterr().out
    assert "makes its training data at random and does not seed it" in shown
    assert "does not seed before it builds its model" in shown


ALIKE = Start("a", "b")


@pytest.mark.parametrize(
    ("starts", "words"),
    [
        ((ALIKE, ALIKE, ALIKE), []),
        ((ALIKE, ALIKE, Start("x", "b")), ["does not seed before it builds its model"]),
        ((ALIKE, ALIKE, Start("a", "x")), ["makes its training data at random"]),
        ((ALIKE, ALIKE, Start("x", "x")), ["builds its model", "makes its training data at random"]),
        ((ALIKE, Start("x", "b"), Start("y", "b")), ["begins with other weights at every start"]),
        ((ALIKE, Start("a", "x"), Start("a", "y")), ["begins with other data at every start"]),
    ],
)
def test_what_a_script_begins_with_at_random_is_named(starts, words):
    notes = compare_starts(*starts)
    assert len(notes) == len(words)
    for note, word in zip(notes, words, strict=True):
        assert word in note
        assert "footplate.set_seed(...)" in note
