"""Whatever footplate warns of is seen: on real terminals, in pipes, in a notebook, and where streams fail."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from footplate.voice import FLUSH_SECONDS, OwnHandler, is_shown_by_user, say
from terminal import run_on_terminal

# a run whose loss is NaN, whose model does not fit on the disk, or which is well
RUN = """
import logging, resource, sys, time
import torch
import tiny
from footplate import Trainer, TrainerCallback

kind, folder, settings = sys.argv[1], sys.argv[2], eval(sys.argv[3])

class Model(tiny.Regression):
    def __init__(self):
        super().__init__()
        self.ballast = torch.nn.Parameter(torch.zeros(300_000))

    def forward(self, x, labels=None):
        outputs = super().forward(x, labels)
        if kind == "nan":
            outputs["loss"] = outputs["loss"] * float("nan")
        return outputs

class Slow(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        time.sleep(0.03)  # so that the bar is drawn between the warnings

data = tiny.regression_data(64)
chosen = {"max_steps": 8, "logging_steps": 2, "disable_tqdm": False, **settings}
if kind == "full":
    chosen |= {"save_strategy": "steps", "save_steps": 2}
trainer = Trainer(Model(), tiny.arguments(folder, **chosen), train_dataset=data, callbacks=[Slow()])
if kind == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
try:
    trainer.train()
except Exception as error:
    print("raised", type(error).__name__)
print("the end at", trainer.state.global_step)
"""


def run(kind: str, folder: Path, code: str = RUN, **settings: Any) -> subprocess.CompletedProcess[str]:
    """The run with both streams in pipes."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, kind, str(folder), repr(settings)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def warnings_in(folder: Path) -> list[str]:
    lines = (folder / "events.jsonl").read_text().splitlines()
    return [event["message"] for event in map(json.loads, lines) if event["kind"] == "warning"]


def test_a_loss_that_is_nan_is_seen_on_stderr_once_and_in_the_journal(tmp_path: Path) -> None:
    done = run("nan", tmp_path)
    assert done.returncode == 0
    (line,) = [line for line in done.stderr.splitlines() if "not finite" in line]
    assert line.startswith("footplate: warning: ")
    assert "not finite" not in done.stdout
    assert len([message for message in warnings_in(tmp_path) if "not finite" in message]) == 1


def test_a_save_that_fails_is_seen_on_stderr(tmp_path: Path) -> None:
    done = run("full", tmp_path)
    told = [line for line in done.stderr.splitlines() if line.startswith("footplate: ")]
    assert [line for line in told if re.search(r"checkpoint-2\b", line)], done.stderr
    assert "the end at" in done.stdout


def test_a_warning_stands_on_lines_of_its_own_above_the_bar(tmp_path: Path) -> None:
    terminal, _, code = run_on_terminal(RUN, 100, "nan", str(tmp_path), "{}")
    assert code == 0
    (at,) = [i for i, line in enumerate(terminal.lines) if "not finite" in line]
    assert terminal.lines[at].startswith("footplate: warning: ")
    assert "train:" not in terminal.lines[at]
    assert "\x1b[33m warning:" in terminal.written  # in colour
    assert [line for line in terminal.lines if "train:" in line] == [
        line for line in terminal.lines if line.startswith("train: 100%")
    ]
    assert max(map(len, terminal.lines)) <= 100


def test_the_level_of_the_arguments_decides_what_is_said(tmp_path: Path) -> None:
    info = run("well", tmp_path / "info", log_level="info").stderr.splitlines()
    at = info.index("footplate: The run:")
    assert [line.split()[0] for line in info[at + 1 : at + 7]] == [
        *("model", "data", "batch", "run", "precision", "writes")
    ]
    assert info[at + 1] == "  model      Model, 300,002 parameters"
    assert "The run:" not in run("well", tmp_path / "passive").stderr
    quiet = run("nan", tmp_path / "error", log_level="error")
    assert quiet.stderr == ""
    assert "event=log step=2" in quiet.stdout  # what was asked for by logging_steps


def test_a_terminal_shows_the_start_of_a_run_once_whatever_the_level(tmp_path: Path) -> None:
    for level in ("passive", "info"):
        terminal, _, code = run_on_terminal(
            RUN, 100, "well", str(tmp_path / level), repr({"log_level": level})
        )
        assert code == 0
        assert len([line for line in terminal.lines if line.startswith("  model      Model")]) == 1


@pytest.mark.parametrize("where", ["", "footplate"])
def test_a_user_who_sets_up_logging_is_in_charge(tmp_path: Path, where: str) -> None:
    setup = (
        "import logging, sys\n"
        "handler = logging.StreamHandler(sys.stderr)\n"
        "handler.setFormatter(logging.Formatter('MINE %(message)s'))\n"
        f"logging.getLogger({where!r}).addHandler(handler)\n"
    )
    done = run("nan", tmp_path, setup + RUN)
    (line,) = [line for line in done.stderr.splitlines() if "not finite" in line]
    assert line.startswith("MINE ")
    silent = "import logging\nlogging.getLogger('footplate').addHandler(logging.NullHandler())\n"
    assert "not finite" not in run("nan", tmp_path / "silent", silent + RUN).stderr


def test_only_handlers_that_get_the_record_count_as_the_users() -> None:
    parent, child = logging.getLogger("voice_test"), logging.getLogger("voice_test.child")
    child.propagate = False
    handler = logging.NullHandler()
    parent.addHandler(handler)
    assert is_shown_by_user("voice_test")
    assert not is_shown_by_user("voice_test.child")
    child.addHandler(OwnHandler())
    assert not is_shown_by_user("voice_test.child")


def test_a_warning_is_seen_in_a_notebook(tmp_path: Path) -> None:
    code = RUN.replace(
        "import logging, resource, sys, time", "import logging, resource, sys, time\nsys.argv = ARGV"
    )
    start = f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    start += f"ARGV = ['', 'nan', {str(tmp_path)!r}, '{{}}']\n"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(start + code)])
    nbclient.NotebookClient(notebook, timeout=120).execute()
    outputs = notebook.cells[0].outputs
    text = {name: "".join(o.text for o in outputs if o.get("name") == name) for name in ("stdout", "stderr")}
    assert text["stderr"].count("not finite") == 1
    assert "  model      Model, 300,002 parameters" in text["stdout"]
    assert "  finished  8 updates in" in text["stdout"]


# ---- streams that fail ----


FAILING = RUN.replace("train_dataset=data,", "train_dataset=data, eval_dataset=data[:8],").replace(
    'print("the end at", trainer.state.global_step)', "trainer.log_metrics('eval', trainer.evaluate())"
)


@pytest.mark.parametrize("reader", ["nobody", "one line", "full"])
def test_a_stdout_that_fails_below_tables_of_samples_and_metrics_ends_nothing(
    tmp_path: Path, reader: str
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}
    settings = {"save_strategy": "steps", "save_steps": 8, "eval_strategy": "steps", "eval_steps": 2}
    settings |= {"show_samples": 3, "lr_scheduler_type": "greedy", "metric_for_best_model": "loss"}
    settings |= {"lr_scheduler_kwargs": {"verbose": True}}
    command = [sys.executable, "-c", FAILING, "well", str(tmp_path), repr(settings)]
    target: Any = open("/dev/full", "w") if reader == "full" else subprocess.PIPE  # noqa: SIM115
    process = subprocess.Popen(command, stdout=target, stderr=subprocess.PIPE, text=True, env=environment)
    if process.stdout is not None:
        assert reader == "nobody" or process.stdout.readline()
        process.stdout.close()
    assert process.stderr is not None
    stderr = process.stderr.read()
    assert process.wait(60) in (0, 120), stderr  # 120: Python's own flush at the exit
    assert "Traceback" not in stderr
    assert stderr.count("<stdout> cannot be written") == 1
    assert (tmp_path / "checkpoint-8" / "manifest.json").is_file()
    assert (tmp_path / "samples.jsonl").read_text().count("\n") == 3 * 4


@pytest.mark.parametrize("disable_tqdm", [False, True])
def test_a_stdout_on_a_full_disk_is_named_once_and_training_goes_on(
    tmp_path: Path, disable_tqdm: bool
) -> None:
    code = RUN.replace('print("the end at", trainer.state.global_step)', "")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}
    settings = {"disable_tqdm": disable_tqdm, "save_strategy": "steps", "save_steps": 8}
    command = [sys.executable, "-c", code, "well", str(tmp_path), repr(settings)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False
        )
    assert (tmp_path / "checkpoint-8" / "manifest.json").is_file()
    assert done.stderr.count("<stdout> cannot be written") == 1
    assert len([message for message in warnings_in(tmp_path) if "<stdout> cannot be written" in message]) == 1
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_does_not_end_training(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}
    settings = {"save_strategy": "steps", "save_steps": 8}
    ours, theirs = os.pipe()
    os.close(ours)
    command = [sys.executable, "-c", RUN, "well", str(tmp_path), repr(settings)]
    done = subprocess.run(command, stdout=theirs, stderr=theirs, env=environment, check=False)
    os.close(theirs)
    assert done.returncode in (1, 120)  # the script's own print fails, or Python's flush at the exit
    assert (tmp_path / "checkpoint-8" / "manifest.json").is_file()
    told = [message for message in warnings_in(tmp_path) if "cannot be written" in message]
    assert len(told) == 2  # stderr and stdout, each once


def test_what_is_said_while_a_run_is_prepared_is_in_its_journal(tmp_path: Path) -> None:
    run("well", tmp_path, save_strategy="steps", save_steps=4)
    run(
        "well",
        tmp_path,
        RUN.replace("trainer.train()", "trainer.train('auto')"),
        max_steps=12,
        learning_rate=1e-4,
    )
    assert [message for message in warnings_in(tmp_path) if "other settings" in message]


LINES = """
import os, sys, threading, time
from footplate import voice

def read_all():
    os.set_blocking(reader, False)
    try:
        return os.read(reader, 10_000).decode()
    except BlockingIOError:
        return ""

reader, writer = os.pipe()
printed, stream = sys.stdout, open(writer, "w")
sys.__stdout__ = stream
for number in range(3):
    voice.say(f"line {number}", stream, at_once=False)
at_once = read_all()
time.sleep(3 * voice.FLUSH_SECONDS)
later = read_all()
voice.say("line 3", stream, at_once=False)
voice.say("line 4", stream, at_once=False)
child = os.fork()
if child == 0:
    stream.close()  # would write what it had a copy of
    os._exit(0)
os.waitpid(child, 0)
forked = read_all()
voice.say("line 5", stream, at_once=False)
voice.say("line 6", stream)
print([at_once, later, forked, read_all()], threading.active_count(), file=printed)
"""


def test_lines_in_quick_succession_are_flushed_together_and_soon():
    done = subprocess.run([sys.executable, "-c", LINES], capture_output=True, text=True, check=True)
    seen = ["line 0\n", "line 1\nline 2\n", "line 3\nline 4\n", "line 5\nline 6\n"]
    assert done.stdout == f"{seen} 1\n"


LINES_OF_TWO = """
import os, sys, time
from footplate import voice

reader, writer = os.pipe()
sys.__stdout__ = stream = open(writer, "w")
voice.say("first", stream, at_once=False)
voice.say("second", stream, at_once=False)
voice.say("a warning", sys.stderr)
time.sleep(3 * voice.FLUSH_SECONDS)
sys.stdout.write(os.read(reader, 1000).decode())
"""


def test_a_line_on_another_stream_does_not_keep_a_waiting_one_back():
    done = subprocess.run([sys.executable, "-c", LINES_OF_TWO], capture_output=True, text=True, check=True)
    assert done.stdout == "first\nsecond\n"


def test_a_stream_that_fails_when_it_is_flushed_late_is_named_once(caplog, monkeypatch):
    class Failing(io.StringIO):
        name = "a failing stream"

        def flush(self) -> None:
            if threading.current_thread() is not threading.main_thread():
                raise OSError(28, "no space")

    stream = Failing()
    monkeypatch.setattr(sys, "__stdout__", stream)
    with caplog.at_level(logging.WARNING, logger="footplate"):
        for number in range(3):
            say(f"line {number}", stream, at_once=False)
            time.sleep(FLUSH_SECONDS / 2)
        time.sleep(3 * FLUSH_SECONDS)
    assert [record.getMessage().startswith("a failing stream cannot be") for record in caplog.records] == [
        True
    ]
