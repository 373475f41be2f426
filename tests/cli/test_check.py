"""`footplate check`: real scripts, tried and not trained."""

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
import resource
import torch
from torch import nn
from LIBRARY import Trainer, TrainingArguments

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x, labels):
        logits = self.head(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

class Pairs(nn.Module):
    '''Compares every token with every other, which takes memory by the square of the length.'''

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(9, 4)

    def forward(self, input_ids, labels):
        hidden = self.tokens(input_ids)
        return {"loss": torch.tanh(hidden @ hidden.transpose(1, 2)).mean() + 0.0 * labels.sum()}

def measure(prediction):
    if "--bad-metrics" in sys.argv:
        return {"f1": {}["missing"]}
    return {"f1": 1.0}

def pad(rows):
    width = max(len(row["input_ids"]) for row in rows)
    ids = [row["input_ids"] + [0] * (width - len(row["input_ids"])) for row in rows]
    return {"input_ids": torch.tensor(ids), "labels": torch.tensor([row["labels"] for row in rows])}

print("from the script")
stream = iter([{"x": torch.ones(4), "labels": 0}] * 40)  # what cannot be read twice

class Rows(torch.utils.data.IterableDataset):
    def __iter__(self):
        return stream

best = "accuracy" if "--bad-name" in sys.argv else "f1"
args = TrainingArguments("out", max_steps=12, use_cpu=True, report_to="none", save_steps=6,
    eval_strategy="steps", eval_steps=6, metric_for_best_model=best)
rows = [{"x": torch.ones(4), "labels": 0} for _ in range(8)]
if "--memory" in sys.argv:
    long = [{"input_ids": [1] * (5_000 if index == 11 else 5), "labels": 0} for index in range(64)]
    args.eval_strategy = args.save_strategy = "no"
    args.metric_for_best_model = None
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 9 * 10**8, -1))
    Trainer(model=Pairs(), args=args, train_dataset=long, data_collator=pad).train()
try:
    data = {"train_dataset": Rows(), "eval_dataset": rows}
    Trainer(model=Model(), args=args, compute_metrics=measure, **data).train()
except Exception:
    open("caught", "w")
open("reached_the_end", "w")
"""


@pytest.fixture
def script(write_script):
    return write_script(SCRIPT)


def test_a_good_script_is_checked_and_not_trained(script, tmp_path, capsys):
    train = Trainer.train
    assert main(["check", script]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "from the script"
    assert lines[1].startswith("rehearsed 5 passed, in ")
    assert lines[2].startswith("passed    update (the first micro-batch, 8 rows of 4, ")
    assert lines[3:] == ["change    nothing"]
    assert list((tmp_path / "out").iterdir()) == []
    assert not (tmp_path / "reached_the_end").exists()
    assert not (tmp_path / "caught").exists()
    assert Trainer.train is train


@pytest.mark.parametrize(
    ("word", "part", "setting"),
    [
        ("--bad-metrics", "evaluation", "compute_metrics"),
        ("--bad-name", "best metric", "metric_for_best_model"),
    ],
)
def test_a_mistake_is_named_with_its_setting_and_the_code_is_1(script, capsys, word, part, setting):
    assert main(["check", "--json", script, word]) == 1
    captured = capsys.readouterr()
    (finding,) = [one for one in json.loads(captured.out)["findings"] if one["outcome"] == "failed"]
    assert finding["part"] == part
    assert setting in finding["settings"]
    assert "from the script" in captured.err


def test_the_text_shows_what_to_change(script, capsys):
    assert main(["check", script, "--bad-name"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[3] == "change    metric_for_best_model, compute_metrics"
    assert lines[4].startswith("FAILED  best metric: metric_for_best_model='accuracy' is not among")
    assert lines[5] == "  change: metric_for_best_model, compute_metrics"


def test_a_script_that_does_not_train_is_refused(script, capsys):
    Path(script).write_text("import footplate; print('nothing to train')")
    assert main(["check", script]) == 2
    assert "ended without calling Trainer.train()" in capsys.readouterr().err


def test_a_script_that_is_not_there_is_one_line(capsys):
    assert main(["check", "nowhere.py"]) == 2
    assert "'nowhere.py' is not a file" in capsys.readouterr().err


def test_memory_that_really_runs_out_is_found_in_the_longest_row(script, tmp_path):
    """The address space of the process is limited: one row of 64 takes more."""
    words = [sys.executable, "-m", "footplate", "check", script, "--memory"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "out of memory with the largest micro-batch, 8 rows of 5000 tokens" in done.stdout
    assert "can't allocate memory" in done.stdout
    assert "of them fit" in done.stdout
    assert "change    per_device_train_batch_size=" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--drive"], []], ids=["as told", "as it does not import footplate"])
def test_a_script_for_the_original_is_checked_in_its_own_process(options, script, tmp_path):
    (tmp_path / "other.py").write_text(SCRIPT.replace("LIBRARY", "transformers"))
    words = [sys.executable, "-m", "footplate", "check", *options, "other.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "rehearsed 5 passed" in done.stdout
