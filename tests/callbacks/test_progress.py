"""Tests of bars and lines, through real pipes and a real terminal."""

import itertools
import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers

from footplate.callbacks.lines import format_line
from footplate.callbacks.notebook import NotebookProgressCallback
from footplate.callbacks.progress import (
    EvaluationLines,
    PrinterCallback,
    ProgressCallback,
    default_progress_callback,
)
from footplate.state import TrainerControl, TrainerState
from terminal import run_on_terminal

PAIR = re.compile(r'([^\s="]+)=("(?:[^"\\]|\\.)*"|[^\s="]+)(?: |$)')

# a run of two epochs with an evaluation after each, driven through the handler
RUN = """
import time
from types import SimpleNamespace
from footplate.callbacks import CallbackHandler, DefaultFlowCallback, ProgressCallback
from footplate.state import TrainerControl, TrainerState

ProgressCallback.seconds_between_lines = 0.0
handler = CallbackHandler([DefaultFlowCallback, ProgressCallback], None, None, None, None)
handler.eval_dataloader = range(40)
args = SimpleNamespace(logging_first_step=False, logging_strategy="steps", eval_strategy="epoch",
                       save_strategy="no", eval_delay=0)
state = TrainerState(max_steps=20, num_train_epochs=2, logging_steps=5)
control = handler.on_train_begin(args, state, TrainerControl())
while not control.should_training_stop:
    control = handler.on_step_begin(args, state, control)
    state.global_step += 1
    state.epoch = state.global_step / 10
    time.sleep(0.002)
    control = handler.on_step_end(args, state, control)
    if control.should_log:
        logs = {"loss": 1 / state.global_step, "learning_rate": 4.2e-5, "note": "two words"}
        logs |= {"total_flos": 1e15, "epoch": state.epoch}
        control = handler.on_log(args, state, control, logs)
        assert "total_flos" in logs
    if state.global_step % 10 == 0:
        for _ in range(40):
            control = handler.on_prediction_step(args, state, control)
        control = handler.on_log(args, state, control, {"eval_loss": 0.5, "eval_f1": float("nan")})
        control = handler.on_evaluate(args, state, control, {"eval_loss": 0.5})
handler.on_train_end(args, state, control)
"""


def parse(line):
    """The pairs of a line, which must consist of nothing else."""
    pairs = PAIR.findall(line)
    assert "".join(PAIR.sub("", line).split()) == "", line
    assert pairs, line
    return {key: json.loads(value) if value.startswith('"') else value for key, value in pairs}


def test_every_line_of_a_piped_run_can_be_parsed():
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, check=True, text=True)
    assert "\r" not in done.stdout
    assert done.stderr == ""
    lines = [parse(line) for line in done.stdout.splitlines()]
    assert lines[0] == {"event": "train_begin", "step": "0", "max_steps": "20", "num_train_epochs": "2"}
    assert lines[-1]["event"] == "train_end"
    assert (lines[-1]["step"], float(lines[-1]["elapsed_seconds"]) >= 0.0) == ("20", True)
    train = [line for line in lines if "loss" in line]
    assert [(line["step"], line["max_steps"], line["epoch"]) for line in train] == [
        ("5", "20", "0.5"),
        ("10", "20", "1"),
        ("15", "20", "1.5"),
        ("20", "20", "2"),
    ]
    assert [float(line["loss"]) for line in train] == pytest.approx([1 / 5, 1 / 10, 1 / 15, 1 / 20], rel=1e-5)
    assert {line["note"] for line in train} == {"two words"}
    assert {float(line["learning_rate"]) for line in train} == {4.2e-5}
    assert "total_flos" not in train[0]
    assert float(train[0]["eta_seconds"]) >= 0
    assert "eta_seconds" not in train[-1]
    evaluation = [line for line in lines if line["event"] == "evaluation"]
    assert [int(line["batch"]) for line in evaluation] == 2 * [4, 8, 12, 16, 20, 24, 28, 32, 36, 40]
    assert {line["num_batches"] for line in evaluation} == {"40"}
    assert all(float(line["eta_seconds"]) >= 0 for line in evaluation)
    metrics = [line for line in lines if "eval_loss" in line]
    assert len(metrics) == 2
    assert math.isnan(float(metrics[0]["eval_f1"]))


def test_a_terminal_shows_bars_with_the_time_to_go_and_the_logs_above_them():
    terminal, _, code = run_on_terminal(RUN)
    assert code == 0
    assert "\r" in terminal.written
    assert "20/20" in terminal.written  # the bar of the training
    assert re.search(r"eval: +\d+% \|.*/40", terminal.written)  # the bar of the evaluation, by its name
    assert re.search(r"\d+/20 \[\d\d:\d\d<", terminal.written)
    assert "event=" not in terminal.written
    assert "eta_seconds" not in terminal.written  # the bar has the only estimate
    assert terminal.lines[:3] == [
        '   5/20  epoch 0.50  loss 0.2000   lr 4.200e-05  note "two words"',
        '  10/20  epoch 1.00  loss 0.1000   lr 4.200e-05  note "two words"',
        "  10/20  eval  loss 0.5000   f1 nan",
    ]
    assert re.match(r"train: 100% \|.*20/20 .*, loss 0.05000\]", terminal.lines[-2])
    assert max(map(len, terminal.lines)) <= 100


def test_logs_in_a_pipe_stay_clean_while_the_terminal_shows_the_bar():
    terminal, piped, code = run_on_terminal(RUN, stdout=subprocess.PIPE)
    assert code == 0
    assert "20/20" in terminal.written
    lines = [parse(line) for line in piped.splitlines()]
    assert {line["event"] for line in lines} == {"log"}
    assert len(lines) == 6


def fire(callback, event, state, **kwargs):
    getattr(callback, event)(None, state, TrainerControl(), **kwargs)


def test_a_resumed_run_reckons_its_time_from_where_it_resumed(capsys, monkeypatch):
    clock = iter([100.0, 110.0])
    monkeypatch.setattr("footplate.callbacks.progress.time.monotonic", lambda: next(clock))
    callback = ProgressCallback()
    fire(callback, "on_train_begin", TrainerState(global_step=90, max_steps=120))
    fire(callback, "on_log", TrainerState(global_step=100, max_steps=120), logs={"loss": 1.0})
    start, log = map(parse, capsys.readouterr().out.splitlines())
    assert start["step"] == "90"
    assert log["eta_seconds"] == "20"  # ten steps took ten seconds


def test_processes_that_do_not_lead_are_silent(capsys):
    callback, state = ProgressCallback(), TrainerState(is_world_process_zero=False, max_steps=5)
    for event in ("on_train_begin", "on_step_end", "on_prediction_step", "on_evaluate", "on_predict"):
        fire(callback, event, state)
    fire(callback, "on_log", state, logs={"loss": 1.0})
    fire(callback, "on_train_end", state)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("key", ["state", "event", "self", "odd key=\n", "überlang"])
def test_any_key_and_text_stays_on_one_readable_line(capsys, key):
    text = 'a "b" = c\nd\re\u2028f\\'
    fire(ProgressCallback(max_str_len=30), "on_log", TrainerState(), logs={key: text, "long": "x" * 500})
    (line,) = capsys.readouterr().out.splitlines()
    assert line.isascii()
    pairs = parse(line)
    assert text in pairs.values()
    assert pairs["long"] == "x" * 30 + "..."


def test_values_of_every_kind_become_text_that_reads_back():
    values = {
        "float": 0.000042,
        "whole": 3,
        "numpy": np.float32(0.5),
        "tensor": torch.tensor(2.5),
        "list": [1, 2.5],
        "none": None,
        "flag": True,
        "empty": "",
        "infinite": -math.inf,
    }
    pairs = parse(format_line(values))
    assert pairs == {
        "float": "4.2e-05",
        "whole": "3",
        "numpy": "0.5",
        "tensor": "2.5",
        "list": "[1, 2.5]",
        "none": "null",
        "flag": "true",
        "empty": "",
        "infinite": "-inf",
    }


def test_evaluation_lines_keep_to_a_tenth_and_to_ten_seconds(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("footplate.callbacks.progress.time.monotonic", lambda: clock[0])

    def lines(num_batches, seconds_per_batch, total=1000):
        clock[0] = 0.0
        pace, found = EvaluationLines(num_batches, 10.0), []
        for _ in range(total):
            clock[0] += seconds_per_batch
            line = pace.advance()
            if line:
                found.append((line["batch"], clock[0], line.get("eta_seconds")))
        return found

    assert lines(1000, 0.005) == []  # over in five seconds
    slow = lines(1000, 1.0)
    assert [batch for batch, _, _ in slow] == [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]
    assert [eta for _, _, eta in slow] == [900, 800, 700, 600, 500, 400, 300, 200, 100, 0]
    quick = lines(1000, 0.03)
    assert all(later - sooner >= 10 for (_, sooner, _), (_, later, _) in itertools.pairwise(quick))
    assert len(quick) == 2
    endless = lines(None, 1.0, total=100)
    assert [(batch, eta) for batch, _, eta in endless] == [(10 * tenth, None) for tenth in range(1, 11)]


def test_two_evaluations_are_counted_apart(capsys):
    callback, state = ProgressCallback(), TrainerState()
    callback.seconds_between_lines = 0.0
    for event in ("on_evaluate", "on_predict"):
        for _ in range(2):
            fire(callback, "on_prediction_step", state, eval_dataloader=[0, 1])
        fire(callback, event, state, metrics={})
    batches = [parse(line)["batch"] for line in capsys.readouterr().out.splitlines()]
    assert batches == ["1", "2", "1", "2"]


def test_a_loader_without_length_is_shown_without_a_time_to_go(capsys):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(3))

    callback = ProgressCallback()
    callback.seconds_between_lines = 0.0
    loader = torch.utils.data.DataLoader(Stream())
    fire(callback, "on_prediction_step", TrainerState(), eval_dataloader=loader)
    line = parse(capsys.readouterr().out.strip())
    assert line["batch"] == "1"
    assert "eta_seconds" not in line


def test_the_printer_prints_what_the_original_prints_and_leaves_the_log_as_it_was(capsys):
    logs = {"loss": 0.123456, "step": 3, "note": "x", "total_flos": 1e12}
    before = dict(logs)
    fire(PrinterCallback(), "on_log", TrainerState(), logs=logs)
    assert logs == before
    fire(transformers.PrinterCallback(), "on_log", TrainerState(), logs=dict(logs))
    ours, theirs = capsys.readouterr().out.splitlines()
    assert ours == theirs
    fire(PrinterCallback(), "on_log", TrainerState(is_local_process_zero=False), logs=logs)
    assert capsys.readouterr().out == ""


def test_the_callback_is_picked_by_place_and_setting(monkeypatch):
    assert default_progress_callback(disable_tqdm=True) is PrinterCallback
    assert default_progress_callback(disable_tqdm=False) is ProgressCallback
    import IPython

    shell = type("Shell", (), {"kernel": object()})()
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    assert default_progress_callback(disable_tqdm=False) is NotebookProgressCallback
    assert default_progress_callback(disable_tqdm=True) is PrinterCallback


def test_importing_the_callbacks_imports_nothing_heavy():
    code = "import sys, footplate.callbacks; print({'IPython', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "set()\n"
