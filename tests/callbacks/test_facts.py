"""Tests of what a run says at its start and its end, through real runs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import tiny
from footplate import Trainer, TrainerCallback
from footplate.callbacks.facts import as_given, describe_end, format_duration, format_end, format_start
from footplate.callbacks.progress import ProgressCallback
from footplate.state import TrainerState
from terminal import run_on_terminal


def train(
    folder: Path, resume: Any = None, callbacks: Any = (), eval_dataset: Any = None, **settings: Any
) -> Trainer:
    chosen = {
        "disable_tqdm": False,
        "num_train_epochs": 2,
        "logging_steps": 4,
        "learning_rate": 0.05,
        **settings,
    }
    chosen |= {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    args = tiny.arguments(folder, **chosen)
    data = tiny.regression_data(64)
    model = tiny.Regression()
    model.offset.requires_grad = False
    trainer = Trainer(
        model, args, train_dataset=data, eval_dataset=eval_dataset or data[:8], callbacks=list(callbacks)
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def facts_in(text: str, event: str) -> dict[str, str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"event={event} ")]
    return dict(re.findall(r"(\S+?)=(\S+)", line))


def test_a_pipe_gets_the_facts_of_start_and_end_on_stderr(tmp_path, capsys):
    evaluating = {"eval_strategy": "steps", "eval_steps": 4, "save_strategy": "steps", "save_steps": 8}
    trainer = train(tmp_path, **evaluating)
    shown = capsys.readouterr()
    begin, end = facts_in(shown.err, "run_begin"), facts_in(shown.err, "run_end")
    assert begin == {
        "event": "run_begin",
        **{"model": "Regression", "parameters": "2", "trainable": "1", "rows": "64"},
        **{"micro_batch": "4", "accumulation": "2", "processes": "1", "batch": "8"},
        **{"updates": "16", "epochs": "2", "precision": "float32", "device": "cpu"},
        "output_dir": str(tmp_path),
    }
    losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert (end["best_metric"], float(end["best"])) == ("eval_loss", pytest.approx(min(losses), rel=1e-4))
    assert (end["last_metric"], end["last_step"]) == ("eval_loss", "16")
    assert end["checkpoint"] == str(tmp_path / "checkpoint-16")
    assert end["report"] == str(tmp_path / "report.html")
    assert "run_begin" not in shown.out
    assert "run_end" not in shown.out


def test_a_resumed_run_says_from_which_checkpoint_and_at_which_row(tmp_path, capsys):
    class Stop(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_training_stop = state.global_step == 11

    saving = {"save_strategy": "steps", "save_steps": 3}
    train(tmp_path, callbacks=[Stop()], **saving)
    assert facts_in(capsys.readouterr().err, "run_end")["updates"] == "11"
    train(tmp_path, resume=True, **saving)
    begin = facts_in(capsys.readouterr().err, "run_begin")
    assert Path(begin["resumed_from"]).name == "checkpoint-9"
    assert (begin["resumed_step"], begin["resumed_epoch"], begin["resumed_sample"]) == ("9", "1", "8")


def test_with_disable_tqdm_only_the_dictionaries_of_the_original_are_printed(tmp_path, capsys):
    train(tmp_path, disable_tqdm=True)
    shown = capsys.readouterr()
    assert all(line.startswith("{") for line in shown.out.splitlines())
    assert "run_begin" not in shown.err


def test_the_start_for_people():
    facts = {"model": "Bert", "parameters": 66364418, "trainable": 1538, "rows": 4000, "micro_batch": 8}
    facts |= {"accumulation": 4, "processes": 2, "batch": 64, "updates": 1250, "epochs": 1.5}
    facts |= {"precision": "bf16 mixed", "device": "cuda:0", "output_dir": "runs/qa"}
    resumed = {"resumed_from": "runs/qa/checkpoint-50", "resumed_step": 50, "resumed_epoch": 0}
    assert format_start({**facts, **resumed, "resumed_sample": 3200}).splitlines() == [
        "  model      Bert, 66,364,418 parameters, 1,538 of them trained",
        "  data       4,000 rows",
        "  batch      64 rows per update = 8 x 4 accumulated x 2 processes",
        "  run        1,250 updates, 1.5 epochs",
        "  precision  bf16 mixed on cuda:0",
        "  writes to  runs/qa",
        "  resumes    runs/qa/checkpoint-50, after update 50, at row 3,200 of epoch 1",
    ]
    del facts["rows"], facts["epochs"]
    assert "  data       a stream" in format_start(facts).splitlines()


def test_the_end_for_people(tmp_path):
    args = tiny.arguments(tmp_path, metric_for_best_model="f1")
    history = [{"eval_f1": 0.8, "step": 10}, {"loss": 1.0, "step": 15}, {"eval_f1": 0.7, "step": 20}]
    state = TrainerState(
        global_step=20, max_steps=30, log_history=history, best_metric=0.8, best_global_step=10
    )
    state.best_model_checkpoint = "runs/checkpoint-10"
    lines = format_end(describe_end(args, state, 61.2, "runs/checkpoint-20")).splitlines()
    assert lines == [
        "  stopped  after 20 of 30 updates, 1 min 1 s",
        "  best     eval_f1 0.8 at step 10",
        "  last     eval_f1 0.7 at step 20",
        "  saved    runs/checkpoint-20, the best is checkpoint-10",
        f"  report   {tmp_path / 'report.html'}",
    ]


def test_a_checkpoint_is_named_as_its_folder_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert as_given(str(tmp_path / "runs" / "checkpoint-3"), "runs") == "runs/checkpoint-3"
    assert as_given("/elsewhere/checkpoint-3", "runs") == "/elsewhere/checkpoint-3"


def test_durations_have_two_units():
    times = (0.034, 3.21, 59.97, 125, 3700, 90000)
    assert [format_duration(time) for time in times] == [
        *("0.03 s", "3.2 s", "1 min 0 s", "2 min 5 s", "1 h 1 min", "1 d 1 h")
    ]


def test_a_loop_of_ones_own_without_a_plan_prints_no_facts(capsys):
    callback = ProgressCallback()
    callback.on_train_begin(None, TrainerState(max_steps=3), None)  # type: ignore[arg-type]
    callback.on_train_end(None, TrainerState(max_steps=3), None)  # type: ignore[arg-type]
    assert capsys.readouterr().err == ""


CODE = """
import sys, time, tiny
from footplate import Trainer, TrainerCallback
often = {"logging_steps": 5, "eval_strategy": "steps", "eval_steps": 10}
args = tiny.arguments(sys.argv[1], disable_tqdm=False, max_steps=20, **often)
data = tiny.regression_data(64)
sets = {"news": data[:16], "wiki": data[16:]}
class Slow(TrainerCallback):
    def on_prediction_step(self, args, state, control, **kwargs):
        time.sleep(0.06)  # tqdm draws ten times a second
trainer = Trainer(tiny.Regression(), args, train_dataset=data, eval_dataset=sets, callbacks=[Slow()])
trainer.train()
trainer.predict(data)
"""


def test_a_terminal_shows_blocks_and_bars_with_the_names_of_the_sets(tmp_path):
    terminal, piped, code = run_on_terminal(CODE, 100, str(tmp_path), stdout=subprocess.PIPE)
    assert code == 0
    assert terminal.lines[0] == "  model      Regression, 2 parameters"
    assert [line for line in terminal.lines if line.startswith("  finished  20 updates in ")]
    for name in ("eval news", "eval wiki", "test"):
        assert re.search(rf"\r{name}: +\d+% \|", terminal.written), name
    assert all(line.startswith("event=") for line in piped.splitlines())
