"""`footplate search script.py`: real scripts whose first `train()` searches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ranks
from footplate.cli.main import main
from footplate.cli.search_script import choose_settings
from footplate.trainer import Trainer

SCRIPT = """
import argparse, json, sys, threading, time
import torch
from torch import nn
from footplate import Trainer, TrainerCallback, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("words", nargs="*")
parser.add_argument("--trials", default="the script's own")
parser.add_argument("--settings", type=json.loads, default={})
options = parser.parse_args()
words = options.words

class Line(nn.Module):
    def __init__(self, slope=0.0):
        super().__init__()
        self.slope, self.offset = nn.Parameter(torch.tensor(slope)), nn.Parameter(torch.tensor(0.0))
        if "lock" in words:
            self.lock = threading.Lock()

    def forward(self, x, labels):
        logits = self.slope * x + self.offset
        return {"loss": ((logits - labels) ** 2).mean(), "logits": logits}

class Slow(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        time.sleep(0.02)

def model_init(trial):
    return Line(trial.params["slope"] if trial is not None else 0.0)

points = [{"x": torch.tensor(i / 10), "labels": torch.tensor(0.2 * i + 3)} for i in range(64)]
settings = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "report": False}
args = TrainingArguments("out", num_train_epochs=2, **settings, **options.settings)
model = None if "init" in words else Line()
more = {"model_init": model_init} if model is None else {}
if "optimizer" in words:
    more["optimizers"] = (torch.optim.SGD(model.parameters(), 0.1), None)
eval_dataset = None if "blind" in words else points
trainer = Trainer(model, args, train_dataset=points, eval_dataset=eval_dataset, **more)
if "slow" in words:
    trainer.add_callback(Slow)
try:
    if "idle" in words:
        sys.exit(0)
    if "search" in words:
        trainer.hyperparameter_search(n_trials=1)
    result = trainer.train(resume_from_checkpoint="auto" if "resume" in words else None)
except Exception as error:
    open("caught", "w").write(repr(error))
    raise
found = {"step": result.global_step, "loss": result.training_loss, "metrics": result.metrics}
found |= {"eval_loss": trainer.evaluate()["eval_loss"], "is_own": trainer.model is model}
found |= {"rate": args.learning_rate, "save": args.save_strategy, "limit": args.save_total_limit}
found |= {"at": trainer.state.global_step, "trial": trainer.state.trial_name, "trials": options.trials}
trainer.save_model("best")
if "twice" in words:
    found["second_step"] = trainer.train().global_step
if trainer.is_world_process_zero():
    open("found.json", "w").write(json.dumps(found))
"""
SPACE = "learning_rate: {low: 1.0e-2, high: 1.0, log: true}\nper_device_train_batch_size: [4, 8]\n"
COMMAND = ["search", "train.py", "--space", "space.yaml", "--backend", "random", "--trials", "4"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a script and a space, which this process works in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["footplate"])
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "space.yaml").write_text(SPACE)
    return tmp_path


def trials_in(folder):
    path = Path(folder, "search", "trials.jsonl")
    lines = path.read_bytes().split(b"\n")[1:-1] if path.exists() else []
    return [{**json.loads(line), "seconds": None} for line in lines]


def found_in(folder):
    return json.loads((folder / "found.json").read_text())


# ---- what the script gets ----


def test_the_script_goes_on_with_the_best_model(folder, capsys):
    train = Trainer.train
    assert main([*COMMAND, "resume", "--", "twice", "--trials", "9"]) == 0
    assert Trainer.train is train
    trials, found = trials_in("out"), found_in(folder)
    best = min(trials, key=lambda trial: trial["values"][0])
    printed = capsys.readouterr()
    assert len(trials) == 4
    assert f"The best is trial {best['number']}:" in printed.out
    assert "eval_strategy='epoch' (was 'no'), save_strategy='best' (was 'steps')" in printed.err
    assert "resume_from_checkpoint='auto'" in printed.err
    assert "calls train() again" in printed.err
    assert found["eval_loss"] == best["values"][0]
    assert found["rate"] == best["params"]["learning_rate"]
    assert (found["at"], found["trial"]) == (best["step"], best["folder"])
    assert found["step"] == found["second_step"] == max(map(int, best["reported"]))
    assert found["loss"] == found["metrics"]["train_loss"] > found["eval_loss"]
    assert (found["is_own"], found["save"], found["limit"], found["trials"]) == (True, "steps", None, "9")
    kept = folder / "out" / best["folder"] / best["checkpoint"] / "model.safetensors"
    assert (folder / "best" / "model.safetensors").read_bytes() == kept.read_bytes()


def test_every_trial_starts_from_the_model_that_train_was_given(folder):
    (folder / "space.yaml").write_text("logging_steps: [5, 7, 9]\n")  # which changes no update
    assert main([*COMMAND[:4], "--backend", "grid", "--settings", '{"learning_rate": 0.1}']) == 0
    values = [trial["values"] for trial in trials_in("out")]
    assert len(values) == 3
    assert values[0] == values[1] == values[2]


def test_a_model_init_gets_the_trial_and_the_script_its_model(folder):
    (folder / "space.yaml").write_text("slope: [0.0, 2.0]\n")
    assert main([*COMMAND[:4], "--backend", "grid", "init", "--settings", '{"learning_rate": 1e-6}']) == 0
    near, far = sorted(trials_in("out"), key=lambda trial: trial["values"][0])
    assert (near["params"], far["params"]) == ({"slope": 2.0}, {"slope": 0.0})
    assert found_in(folder)["eval_loss"] == near["values"][0]


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ({}, {"eval_strategy": "epoch", "save_strategy": "best", "save_total_limit": 1}),
        ({"eval_strategy": "epoch", "save_strategy": "epoch"}, {}),
        ({"eval_strategy": "steps", "save_strategy": "best", "metric_for_best_model": "loss"}, {}),
        ({"eval_strategy": "steps", "eval_steps": 20, "save_steps": 10}, {}),
        (
            {"eval_strategy": "steps", "eval_steps": 10, "save_steps": 20, "save_total_limit": 3},
            {"save_strategy": "best"},
        ),
        ({"eval_strategy": "epoch", "save_strategy": "no"}, {"save_strategy": "best", "save_total_limit": 1}),
    ],
)
def test_settings_change_only_where_the_best_would_have_no_checkpoint(tmp_path, settings, changed):
    from footplate import TrainingArguments

    args = TrainingArguments(str(tmp_path), use_cpu=True, report_to="none", **settings)
    assert choose_settings(args) == changed


# ---- what is refused ----


@pytest.mark.parametrize(
    ("words", "space", "text"),
    [
        (["blind"], SPACE, "has no eval_dataset. Pass eval_dataset=..."),
        (["idle"], SPACE, "train.py ended without calling Trainer.train()"),
        (["search"], SPACE, "train.py calls hyperparameter_search itself: run it with python."),
        (["optimizer"], SPACE, "optimizer_cls_and_kwargs=..."),
        (["lock"], SPACE, "Pass model_init=..."),
        ([], "learning_rat: [1]\n", "Did you mean learning_rate?"),
        ([], "bf16: [true]\n", "bf16 is read when the Trainer is made"),
        (["--backend", "fate"], SPACE, "'fate' is not a HPSearchBackend"),
        (["--space", "none.yaml"], SPACE, "There is no file"),
    ],
)
def test_a_wrong_use_is_said_in_one_line(folder, capsys, words, space, text):
    (folder / "space.yaml").write_text(space)
    assert main([*COMMAND, *words]) == 2
    said = capsys.readouterr().err
    assert text in said.splitlines()[-1]
    assert "Traceback" not in said
    assert not (folder / "caught").exists()
    assert trials_in("out") == []


def test_a_script_that_is_not_there_and_an_error_of_a_script_end_with_a_code(folder, capsys):
    assert main(["search", "none.py"]) == 2
    assert "'none.py' is not a file" in capsys.readouterr().err
    (folder / "train.py").write_text("import footplate\nraise KeyError('its own')")
    assert main(COMMAND) == 1
    assert capsys.readouterr().err.endswith("KeyError: 'its own'\n")


# ---- processes ----


def test_a_search_that_is_killed_goes_on_with_the_same_trials(folder, monkeypatch):
    command = [sys.executable, "-m", "footplate", *COMMAND, "slow"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(trials_in("out")) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.wait()
    before = trials_in("out")
    assert 2 <= len(before) < 4
    assert main(COMMAND) == 0
    resumed, found = trials_in("out"), found_in(folder)
    assert resumed[: len(before)] == before
    (folder / "straight").mkdir()
    for name in ("train.py", "space.yaml"):
        os.rename(folder / name, folder / "straight" / name)
    monkeypatch.chdir(folder / "straight")
    assert main(COMMAND) == 0
    assert resumed == trials_in("out")
    straight = found_in(folder / "straight")
    for name in ("eval_loss", "loss", "step", "at", "trial", "rate"):
        assert found[name] == straight[name]


@pytest.mark.slow
def test_ranks_search_together_and_a_refusal_ends_them_all(folder):
    done = ranks.torchrun(Path("footplate"), *COMMAND[:-1], "2", options=["-m"])
    assert done.code == 0, done.output
    best = min(trials_in("out"), key=lambda trial: trial["values"][0])
    assert done.output.count("The best is trial") == 1
    assert found_in(folder)["eval_loss"] == best["values"][0]
    refused = ranks.torchrun(Path("footplate"), *COMMAND, "blind", options=["-m"])
    assert refused.code != 0
    assert "Pass eval_dataset=..." in refused.output


ADAPTED = """
import json, sys
import torch
from peft import LoraConfig, get_peft_model
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

torch.manual_seed(0)
sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
model = BertForSequenceClassification(BertConfig(vocab_size=50, max_position_embeddings=32, **sizes))
model = get_peft_model(model, LoraConfig(r=2, target_modules=["query", "value"], task_type="SEQ_CLS"))
rows = [{"input_ids": [i % 50, 7 * i % 50, 3], "labels": i % 2} for i in range(32)]
args = TrainingArguments(
    "out", num_train_epochs=3, eval_strategy="epoch", logging_strategy="no", report_to="none", use_cpu=True,
    disable_tqdm=True,
)
trainer = Trainer(model, args, train_dataset=rows, eval_dataset=rows)
trainer.train()
model.save_pretrained("adapter")  # the script's own name of the model
open("found.json", "w").write(json.dumps({"eval_loss": trainer.evaluate()["eval_loss"]}))
"""


@pytest.mark.slow
def test_a_script_for_transformers_with_adapters_is_searched_unchanged(folder):
    (folder / "train.py").write_text(ADAPTED)
    command = [sys.executable, "-m", "footplate", *COMMAND]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    trials = trials_in("out")
    best = min(trials, key=lambda trial: trial["values"][0])
    assert len({trial["values"][0] for trial in trials}) == 4
    assert found_in(folder)["eval_loss"] == best["values"][0]
    kept = folder / "out" / best["folder"] / best["checkpoint"] / "adapter_model.safetensors"
    assert (folder / "adapter" / "adapter_model.safetensors").read_bytes() == kept.read_bytes()
