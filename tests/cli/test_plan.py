"""`footplate plan`: real scripts, planned and not trained."""

from __future__ import annotations

import json
import subprocess
import sys

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
        self.layers = nn.Sequential(nn.Linear(100_000, 100_000), nn.Linear(100_000, 1))
        if "--reads" in sys.argv:
            print("first weight", self.layers[0].weight[0, 0].item())

    def forward(self, x, labels):
        return {"loss": (self.layers(x)[:, 0] - labels).square().mean()}

print("from the script")
args = TrainingArguments("out", max_steps=12, use_cpu=True, report_to="none", save_strategy="no")
rows = [{"x": torch.zeros(100_000), "labels": torch.zeros(())} for _ in range(8)]
if "--idle" not in sys.argv:
    try:
        Trainer(model=Model().to("cpu"), args=args, train_dataset=rows).train()
    except Exception:
        open("caught", "w")
    open("reached_the_end", "w")
"""


@pytest.fixture
def script(write_script):
    return write_script(SCRIPT)


def test_a_model_of_forty_gigabytes_is_planned_and_not_trained(script, tmp_path, capsys):
    train = Trainer.train
    words = ["plan", "--ranks", "4", "--sharding", "full_shard", "--memory", "80GB", "--device", "cuda"]
    assert main([*words, script]) == 1
    shown = capsys.readouterr().out
    assert "10,000,200,001 parameters" in shown
    assert "12 of 32 rows = 8 x 4 ranks" in shown
    assert "of 80.0 GB: DOES NOT FIT" in shown
    # no layer is repeated, so all of it is gathered at once
    assert "nothing in the table fits into 80.0 GB" in shown
    assert not list((tmp_path / "out").glob("*"))
    assert not (tmp_path / "reached_the_end").exists()
    assert not (tmp_path / "caught").exists()
    assert Trainer.train is train


def test_json_stands_alone_on_the_output_and_the_code_says_that_it_fits(script, capsys):
    assert main(["plan", "--json", "--memory", "2TB", script]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["duration"]["updates"] == 12
    assert "from the script" in captured.err


def test_a_script_that_does_not_train_is_refused(script, capsys):
    assert main(["plan", script, "--idle"]) == 2
    assert "ended without calling Trainer.train()" in capsys.readouterr().err


def test_a_script_that_is_not_there_is_one_line(capsys):
    assert main(["plan", "nowhere.py"]) == 2
    assert "'nowhere.py' is not a file" in capsys.readouterr().err


@pytest.mark.slow
def test_a_script_for_the_original_is_planned_in_its_own_process(script, tmp_path):
    (tmp_path / "other.py").write_text(SCRIPT.replace("LIBRARY", "transformers").replace("100_000", "1_000"))
    words = [sys.executable, "-m", "footplate", "plan", "--drive", "other.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "1,002,001 parameters" in done.stdout


def test_a_script_that_needs_values_is_told_of_the_real_model(script, tmp_path, capsys):
    text = (
        (tmp_path / script)
        .read_text()
        .replace("100_000", "100")
        .replace("    except Exception:", "    except KeyError:")
    )
    (tmp_path / script).write_text(text)
    assert main(["plan", script, "--reads"]) == 1
    assert "use --real" in capsys.readouterr().err
    assert main(["plan", "--real", script, "--reads"]) == 0
    assert "10,201 parameters" in capsys.readouterr().out
