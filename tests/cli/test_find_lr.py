"""`footplate find-lr`: a rate for real scripts, which are not trained."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from footplate.cli.main import main
from footplate.trainer import Trainer

SCRIPT = """
import sys
import torch
from torch import nn
from LIBRARY import Trainer, TrainingArguments

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(4, 2)

    def forward(self, x, labels):
        return {"loss": nn.functional.cross_entropy(self.head(x), labels)}

print("from the script")
x = torch.randn(256, 4, generator=torch.Generator().manual_seed(0))
rows = [{"x": one, "labels": int(one.sum() > 0)} for one in x]
stream = iter(rows * 4)  # what cannot be read twice

class Rows(torch.utils.data.IterableDataset):
    def __iter__(self):
        return stream

args = TrainingArguments("out", max_steps=12, use_cpu=True, report_to="none", per_device_train_batch_size=32)
data = Rows() if "--once" in sys.argv else rows
try:
    trainer = Trainer(model=Model(), args=args, train_dataset=data)
    trainer.train(resume_from_checkpoint="nowhere" if "--resume" in sys.argv else None)
except Exception:
    open("caught", "w")
open("reached_the_end", "w")
"""


@pytest.fixture
def script(write_script):
    return write_script(SCRIPT)


def test_a_rate_is_suggested_and_nothing_is_trained(script, tmp_path, capsys):
    train = Trainer.train
    assert main(["find-lr", script]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "from the script"
    assert lines[1].startswith("suggestion  0.")
    assert lines[3].startswith("tried       ")
    assert any("^" in line for line in lines)
    assert list((tmp_path / "out").iterdir()) == []
    assert not (tmp_path / "reached_the_end").exists()
    assert not (tmp_path / "caught").exists()
    assert Trainer.train is train


def test_range_json_and_page_are_as_asked(script, capsys):
    words = ["--lowest", "1e-4", "--highest", "3", "--updates", "60", "--html", "lr.html", "--json"]
    assert main(["find-lr", *words, script, "--lowest-of-the-script"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["planned"] == [1e-4, 3.0, 60]
    assert found["suggestion"] > 0
    assert "from the script" in captured.err
    assert "the curve is in lr.html" in captured.err
    assert "Learning rate" in Path("lr.html").read_text()


def test_a_curve_without_a_suggestion_gives_the_code_1_and_its_page(script, capsys):
    words = ["--highest", "1e-6", "--updates", "20", "--html", "lr.html"]
    assert main(["find-lr", *words, script]) == 1
    assert "suggestion  none: the loss" in capsys.readouterr().out
    assert Path("lr.html").is_file()


def test_data_that_can_be_read_once_suffices(script, capsys):
    assert main(["find-lr", "--lowest", "1e-4", "--updates", "30", script, "--once"]) in (0, 1)
    assert "30 of 30 rates" in capsys.readouterr().out


def test_a_script_that_resumes_is_told_where_the_rate_is_looked_for(script, capsys):
    assert main(["find-lr", script, "--resume"]) == 0
    assert "looked for from the start, without the weights of its checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--lowest", "1", "--highest", "0.1"], "lowest=1 is not below highest=0.1"),
        (["--updates", "5"], "num_updates=5 must be a whole number from 10"),
        (["--html", "nowhere/lr.html"], "--html nowhere/lr.html: give a file in a folder that is there"),
        (["--html", "."], "--html .: give a file"),
    ],
)
def test_wrong_use_is_refused_before_the_script_runs(script, capsys, words, said):
    assert main(["find-lr", *words, script]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert "from the script" not in captured.out


def test_a_script_that_does_not_train_or_is_not_there_is_refused(script, capsys):
    Path(script).write_text("import footplate; print('nothing to train')")
    assert main(["find-lr", script]) == 2
    assert "there is nothing to find a learning rate for" in capsys.readouterr().err
    assert main(["find-lr", "nowhere.py"]) == 2
    assert "'nowhere.py' is not a file" in capsys.readouterr().err


@pytest.mark.slow
def test_a_script_for_the_original_is_swept_in_its_own_process(script, tmp_path):
    (tmp_path / "other.py").write_text(SCRIPT.replace("LIBRARY", "transformers"))
    words = [sys.executable, "-m", "footplate", "find-lr", "--drive", "other.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    assert "suggestion  0." in done.stdout
