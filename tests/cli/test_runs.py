"""`footplate runs`, on runs that real trainers left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

import tiny
from footplate.cli.main import main

TRAIN = """
import os, signal, sys, time
import tiny
from footplate import TrainerCallback

class Act(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 3:
            exec(sys.argv[2])

data = tiny.regression_data(64)
often = dict(max_steps=8, logging_steps=1, eval_strategy="steps", eval_steps=2)
given = dict(eval_data=data, options={"callbacks": [Act()]}, save_strategy="steps", save_steps=4, **often)
tiny.build_trainer(sys.argv[1], tiny.Regression(), data, **given).train()
"""


def start(folder, act, **options):
    """A process that trains, and does something after its third update."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", TRAIN, str(folder), act]
    return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, **options)


def listed(capsys, *words):
    capsys.readouterr()
    assert main(["runs", *map(str, words), "--json"]) == 0
    return {row["path"]: row for row in json.loads(capsys.readouterr().out)}


def content_of(folder):
    return {
        path: (path.stat().st_mtime_ns, path.stat().st_size, path.stat().st_ino)
        for path in [folder, *folder.rglob("*")]
    }


def train(folder, **settings):
    often = {"max_steps": 4, "logging_steps": 1, "eval_strategy": "steps", "eval_steps": 2}
    data = tiny.regression_data(64)
    trainer = tiny.build_trainer(folder, tiny.Regression(), data, eval_data=data, **{**often, **settings})
    trainer.train()
    return trainer


@pytest.mark.slow  # four processes that load torch
def test_what_became_of_each_run_is_told(tmp_path, capsys):
    acts = {
        "stopped": "os.kill(os.getpid(), signal.SIGTERM)",
        "killed": "os.kill(os.getpid(), signal.SIGKILL)",
        "failed": "raise RuntimeError('no')",
        "running": "print(3, flush=True); sys.stdin.read()",
    }
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    processes = {name: start(tmp_path / name, act, **pipes) for name, act in acts.items()}
    try:
        for name in ("stopped", "killed", "failed"):
            processes[name].communicate(timeout=120)
        processes["running"].stdout.readline()
        before = content_of(tmp_path)
        rows = listed(capsys, tmp_path)
        assert {name: row["status"] for name, row in rows.items()} == {name: name for name in acts}
        assert rows["stopped"]["detail"] == "SIGTERM"
        assert rows["failed"]["detail"].startswith("RuntimeError: no")
        assert rows["running"]["detail"] == f"process {processes['running'].pid}"
        assert [rows[name]["step"] for name in ("stopped", "running")] == [3, 2]
        after = content_of(tmp_path)
        lock = tmp_path / "running" / ".footplate.lock"
        assert {path: seen for path, seen in before.items() if path != lock} == {
            path: seen for path, seen in after.items() if path != lock
        }
    finally:
        for process in processes.values():
            process.communicate(b"")
    assert listed(capsys, tmp_path)["running"]["status"] == "finished"


def test_a_run_that_its_time_stopped_says_so(tmp_path, capsys):
    train(tmp_path / "run", max_time="0.000001s")
    row = listed(capsys, tmp_path)["run"]
    assert (row["status"], row["detail"], row["step"]) == ("stopped", "max_time", 1)


def test_the_table_agrees_with_the_trainer(tmp_path, capsys):
    trainer = train(tmp_path / "deep" / "run")
    best = min(
        (entry["eval_loss"], entry["step"]) for entry in trainer.state.log_history if "eval_loss" in entry
    )
    row = listed(capsys, tmp_path)["deep/run"]
    assert (row["status"], row["step"], row["max_steps"]) == ("finished", 4, 4)
    assert (row["best"], row["best_step"]) == (pytest.approx(best[0], rel=1e-5), best[1])
    assert main(["runs", str(tmp_path)]) == 0
    heads, line = capsys.readouterr().out.splitlines()
    assert heads.split() == ["run", "status", "step", "loss", "best", "age", "size"]
    assert line.startswith("deep/run  finished  4 of 4")
    assert f"eval loss {best[0]:.5g} at {best[1]}" in line


def test_a_text_of_a_run_is_no_order_to_the_terminal(tmp_path, capsys):
    folder = tmp_path / "a\x1b[2Jb"
    folder.mkdir()
    (folder / "events.jsonl").write_text('{"kind": "begin", "max_steps": 5, "run_id": "x"}\n\x1b]0;\n')
    assert main(["runs", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "a?[2Jb: 1 line is damaged in events.jsonl" in out


def test_a_folder_without_runs_says_so(tmp_path, capsys):
    assert main(["runs", str(tmp_path)]) == 1
    assert capsys.readouterr().out == f"There are no runs in {tmp_path}.\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "is not a folder"),
        ([".", "--port", "80"], "--port is for --serve"),
        ([".", "--open"], "--open is for a page"),
        ([".", "--html", "nowhere/x.html"], "'nowhere/x.html' cannot be written: give a file in a folder"),
        ([".", "--html", "."], "'.' cannot be written: give a file in a folder that is there"),
    ],
)
def test_wrong_use_is_one_line_that_says_what_to_change(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert main(["runs", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_page_goes_where_it_is_asked_to_and_links_to_the_runs(tmp_path, capsys):
    train(tmp_path / "runs" / "a b")
    page = tmp_path / "pages" / "all.html"
    page.parent.mkdir()
    assert main(["runs", str(tmp_path / "runs"), "--html", str(page)]) == 0
    found = re.search(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"), flags=re.DOTALL)
    described = json.loads(found.group(1))
    (row,) = described["rows"]
    assert (row["path"], row["link"]) == ("a b", "./../runs/a%20b/report.html")
    assert [run["name"] for run in described["runs"]] == ["a b"]


def test_it_serves_until_it_is_interrupted(tmp_path):
    train(tmp_path / "run")
    command = [sys.executable, "-m", "footplate", "runs", str(tmp_path), "--serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        url = process.stdout.readline().split()[0]
        with urllib.request.urlopen(f"{url}data.json", timeout=30) as answer:
            assert json.load(answer)["rows"][0]["status"] == "finished"
        with urllib.request.urlopen(f"{url}run/run/report.html", timeout=30) as answer:
            assert b'"max_steps":4' in answer.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0


def test_fifty_runs_of_ten_thousand_logs_take_a_second(tmp_path, capsys):
    """A tenth of the logs here: 0.1 s of work; a full reading takes ten times as long."""
    log = '{"kind": "log", "time": %d, "step": %d, "epoch": 1.0, "number": %d, "logs": {"loss": %f, '
    log += '"grad_norm": 1.0}, "prefixes": ["eval"], "seconds": {"data": 0.005, "forward": 0.012}}\n'
    for number in range(50):
        folder = tmp_path / f"run-{number}"
        folder.mkdir()
        with open(folder / "events.jsonl", "w") as file:
            file.write('{"kind": "begin", "time": 1, "max_steps": 1000, "run_id": "x", "first_step": 0}\n')
            file.writelines(log % (step, step, step, 1 / step) for step in range(1, 1001))
    began = time.process_time()
    rows = listed(capsys, tmp_path)
    spent = time.process_time() - began
    assert {row["step"] for row in rows.values()} == {1000}
    assert spent < 1.0
