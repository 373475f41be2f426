"""`footplate replay`: real scripts, the command that a run prints by itself, tasks, the debugger."""

from __future__ import annotations

import io
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import footplate
from footplate.cli.main import main
from replayed import contents

SCRIPT = """
import sys
import torch
from torch import nn
from footplate import Trainer, TrainingArguments
from helper import data  # beside the script

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(1, 8), nn.Linear(8, 1)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x, labels):
        scores = self.second(self.dropout(self.first(x[:, None])))[:, 0]
        return {"loss": (scores - labels).square().mean(), "logits": scores}

def main(folder, rate, kind):
    torch.manual_seed(0)
    args = TrainingArguments(
        folder, use_cpu=True, logging_steps=1, save_steps=10, disable_tqdm=True, on_nonfinite="skip",
        per_device_train_batch_size=2, num_train_epochs=1, learning_rate=float(rate), report_to="none",
    )
    trainer = Trainer(Model(), args, train_dataset=data(kind))
    if kind == "idle":
        return
    trainer.train()
    open("reached_the_end", "w")

if __name__ == "__main__":
    main(*sys.argv[1:])
"""
HELPER = """
import torch

def data(kind):
    x = torch.linspace(-1, 1, 80)
    y = 2 * x
    if kind == "spike":
        y[54] = 1e4  # in update 32
    if kind == "damaged":
        x[37] = float("nan")
    return [{"x": x[i], "labels": y[i]} for i in range(80)]
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    (tmp_path / "my scripts").mkdir()
    (tmp_path / "my scripts" / "train.py").write_text(textwrap.dedent(SCRIPT))
    (tmp_path / "my scripts" / "helper.py").write_text(textwrap.dedent(HELPER))
    monkeypatch.chdir(tmp_path)
    yield "my scripts/train.py"
    sys.modules.pop("helper", None)


def start(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)


def printed_command(output: str) -> list[str]:
    """What a run says to type, as words."""
    (line,) = [line for line in output.splitlines() if "footplate replay" in line]
    words = shlex.split(line[line.index("footplate replay") :])
    return words[1:]


@pytest.mark.parametrize(
    ("kind", "found"), [("damaged", "the data of row 37 holds NaN or infinity in x"), ("spike", "loss")]
)
def test_the_command_that_a_run_prints_works_when_it_is_pasted(kind, found, script, tmp_path):
    ended = start(script, "runs/my run", "1e-3", kind)
    assert ended.returncode == 0, ended.stderr
    (tmp_path / "reached_the_end").unlink()
    before = contents(tmp_path / "runs")
    again = start("-m", "footplate", *printed_command(ended.stderr))
    assert again.returncode == 0, again.stderr
    assert "It came out as logged, to the last bit" in again.stdout
    assert found in again.stdout
    number = {"damaged": "37 ", "spike": "54 "}[kind]
    lines = [line.lstrip("x ") for line in again.stdout.splitlines()]
    first = lines.index(next(line for line in lines if line.startswith("---"))) + 1
    assert lines[first].startswith(number)  # the row that is worst comes first
    assert contents(tmp_path / "runs") == before
    assert not (tmp_path / "reached_the_end").exists()


def train(script, folder, kind="plain", rate="1e-3"):
    """Run the script in this process, as `python script` does."""
    from footplate.cli.drive import drive
    from footplate.replaying.api import kept_process

    with kept_process():
        assert drive(script, [folder, rate, kind], is_module=False) == 0


def test_rows_and_modules_are_shown(script, capsys):
    train(script, "run")
    capsys.readouterr()
    assert main(["replay", "run", "--step", "14", "--rows", "--modules", script, "run", "1e-3", "plain"]) == 0
    printed = capsys.readouterr().out
    assert "Update 14 of run, made again from checkpoint-10 (3 updates before it" in printed
    assert "The 2 rows (the loss of a row alone, without dropout" in printed
    assert "The 4 modules, as they ran" in printed
    assert "learning rate" in printed


def test_another_run_is_compared_in_a_process_of_its_own(script, capsys):
    train(script, "a")
    train(script, "b", rate="2e-3")
    assert main(["replay", "a", "--step", "1", "--compare", "b", script, "a", "1e-3", "plain"]) == 0
    printed = capsys.readouterr().out
    assert "Compared with b, in the order of an update:" in printed
    assert "1. The updated weights differ, first in first (Linear)" in printed


def test_other_arguments_than_those_of_the_run_are_blamed(script, capsys):
    train(script, "run")
    assert main(["replay", "run", "--step", "14", script, "run", "2e-3", "plain"]) == 1
    printed = capsys.readouterr().out
    assert "It did NOT come out as logged" in printed
    assert "What has changed since the checkpoint: learning_rate." in printed
    assert main(["replay", "run", "--step", "14", "--own-settings", script, "run", "2e-3", "plain"]) == 0


def test_what_is_wrong_is_said_in_a_line(script, capsys):
    train(script, "run")
    for words, text in (
        (["run", "--step", "41", script, "run", "1e-3", "plain"], "so it has no update 41"),
        (["run", "--step", "14", script, "run", "1e-3", "idle"], "ended without calling Trainer.train()"),
        (["run", "--step", "14"], "does not say which script trained"),
        (["run", "--step", "14", "no.py"], "'no.py' is not a file"),
        (["nowhere", "--step", "14", script], "is not a folder"),
    ):
        assert main(["replay", *words]) == 2
        assert text in capsys.readouterr().err


def test_the_debugger_stops_inside_the_update(script, capsys, monkeypatch):
    train(script, "run")
    typed = "p ('norms', round(float(model.second.weight.grad.norm()), 3) > 0, len(batches))\nc\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert main(["replay", "run", "--step", "14", "--pdb", script, "run", "1e-3", "plain"]) == 0
    printed = capsys.readouterr().out
    assert "Update 14: gradients are computed, and the weights have not changed yet" in printed
    assert "('norms', True, 1)" in printed
    assert "It came out as logged, to the last bit" in printed


def test_the_help_shows_examples(capsys):
    with pytest.raises(SystemExit):
        main(["replay", "--help"])
    assert "footplate replay runs/qa --step 1234" in capsys.readouterr().out


# ---- without a script ----


def test_a_run_of_a_task_needs_no_script(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [f"the colour number {index} is fine,{index % 2}" for index in range(24)]
    Path("train.csv").write_text("\n".join(["sentence,label", *rows]))
    sizes = "hidden_size=8,intermediate_size=8,num_hidden_layers=1,num_attention_heads=1"
    words = ["run", "classification", "--model_type", "bert", "--config_overrides", sizes]
    words += ["--train_tokenizer", "--vocab_size", "60", "--train_file", "train.csv"]
    words += ["--max_seq_length", "16"]
    words += ["--do_train", "--output_dir", "out", "--per_device_train_batch_size", "4", "--use_cpu"]
    words += ["--logging_steps", "1", "--save_steps", "2", "--max_steps", "6", "--disable_tqdm", "True"]
    words += ["--text_column_names", "sentence"]
    assert main(words) == 0
    before = contents(tmp_path / "out")
    capsys.readouterr()
    assert main(["replay", "out", "--step", "4", "--rows"]) == 0
    printed = capsys.readouterr().out
    assert "It came out as logged, to the last bit" in printed
    assert "the colour nu" in printed  # as many tokens as the task allows
    assert "--step" not in printed
    assert contents(tmp_path / "out") == before


OF_TRANSFORMERS = """
import torch
from transformers import Trainer, TrainingArguments
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, x, labels):
        return {"loss": (self.layer(x[:, None])[:, 0] - labels).square().mean()}

torch.manual_seed(0)
rows = [{"x": torch.tensor(i / 20), "labels": torch.tensor(i / 10)} for i in range(20)]
args = TrainingArguments("run", use_cpu=True, logging_steps=1, save_steps=3, max_steps=8, report_to="none")
Trainer(Model(), args, train_dataset=rows).train()
"""


@pytest.mark.slow
def test_a_script_for_the_trainer_of_transformers_is_driven(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(OF_TRANSFORMERS)
    assert start("-m", "footplate", "drive", "train.py").returncode == 0
    ended = start("-m", "footplate", "replay", "run", "--step", "6", "train.py")
    assert ended.returncode == 0, ended.stderr
    assert "made again from checkpoint-3 (2 updates before it" in ended.stdout
    assert "It came out as logged, to the last bit" in ended.stdout


def test_the_public_name_is_the_function():
    assert footplate.replay.__module__ == "footplate.replaying.api"
