"""`footplate profile`: real scripts, a few updates of which are timed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from footplate.cli.main import main
from footplate.trainer import Trainer

SCRIPT = """
import sys
import time
import torch
from torch import nn
from LIBRARY import Trainer, TrainingArguments, TrainerCallback

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x, labels):
        return {"loss": nn.functional.cross_entropy(self.head(x), labels)}

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.001)
        return {"x": torch.ones(4), "labels": 0}

class Told(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        self.steps = 0

    def on_step_end(self, args, state, control, **kwargs):
        self.steps += 1
        open("told", "w").write(str(self.steps))

print("from the script")
args = TrainingArguments("out", max_steps=12, per_device_train_batch_size=4, use_cpu=True,
    report_to="none", save_steps=1, logging_steps=1)
if "--bad" in sys.argv:
    raise RuntimeError('no such data')
Trainer(model=Model(), args=args, train_dataset=Rows(), callbacks=[Told]).train()
open("reached_the_end", "w")
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["footplate"])
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    (tmp_path / "train.py").write_text(SCRIPT.replace("LIBRARY", "footplate"))
    return "train.py"


def test_a_script_is_profiled_and_not_trained(script, tmp_path, capsys):
    train = Trainer.train
    assert main(["profile", "--updates", "6", "--warmup", "2", script]) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert lines[0] == "from the script"
    assert lines[1].startswith("Model on cpu: an update takes ")
    assert "(6 timed, after 2 to warm up)" in lines[1]
    assert max(map(len, lines)) <= 79
    assert text.isascii()
    assert "####" in next(line for line in lines if line.startswith("  waiting for data"))
    assert "spent waiting for data; dataloader_num_workers is 0. Try" in " ".join(text.split())
    assert Path("told").read_text() == str(2 + 6 + 5)  # and some under torch's profiler
    assert list((tmp_path / "out").iterdir()) == []
    assert not Path("reached_the_end").exists()
    assert Trainer.train is train


def test_the_numbers_as_json_and_a_trace(script, capsys):
    words = ["profile", "--json", "--updates", "3", "--warmup", "1", "--modules", "--trace", "t.json.gz"]
    assert main([*words, "--no-callbacks", script]) == 0
    captured = capsys.readouterr()
    told = json.loads(captured.out)
    assert "from the script" in captured.err
    assert told["num_updates"] == 3
    assert sum(part["seconds"] for part in told["parts"]) == pytest.approx(told["seconds"])
    assert {"operators", "modules", "findings", "slowest"} <= told.keys()
    assert not Path("told").exists()
    import gzip

    assert json.loads(gzip.decompress(Path("t.json.gz").read_bytes()))["traceEvents"]


def test_a_script_that_does_not_train_is_refused(script, capsys):
    Path(script).write_text("import footplate; print('nothing to train')")
    assert main(["profile", script]) == 2
    assert "ended without calling Trainer.train(): there is nothing to profile" in capsys.readouterr().err


def test_a_script_that_fails_and_a_file_that_is_missing_have_their_codes(script, capsys):
    assert main(["profile", script, "--bad"]) == 1
    assert "no such data" in capsys.readouterr().err
    assert main(["profile", "nowhere.py"]) == 2
    assert "'nowhere.py' is not a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--updates", "0"], "num_updates=0"),
        (["--warmup", "-1"], "warmup=-1"),
        (["--trace", "nowhere/t.json"], "trace='nowhere/t.json': its folder does not exist"),
        (["--trace", "."], "trace='.' is a folder"),
    ],
)
def test_wrong_options_are_refused_before_the_script_is_run(words, problem, script, capsys):
    assert main(["profile", *words, script]) == 2
    captured = capsys.readouterr()
    assert problem in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


@pytest.mark.slow  # a process that loads torch and transformers
def test_a_script_for_transformers_is_driven_in_a_process_of_its_own(script, tmp_path):
    (tmp_path / "other.py").write_text(SCRIPT.replace("LIBRARY", "transformers"))
    words = [sys.executable, "-m", "footplate", "profile", "--drive", "--updates", "3", "other.py"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "Model on cpu: an update takes " in done.stdout
    assert "profiler_start" not in done.stderr
