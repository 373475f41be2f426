"""`footplate report`, on runs that real trainers left."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import webbrowser

import pytest
import transformers

import footplate
import tiny
from footplate.cli.main import main
from footplate.report.serve import ReportServer


def train(folder, library=footplate, **settings):
    often = {"max_steps": 6, "logging_steps": 1, "save_strategy": "steps", "save_steps": 3}
    trainer = tiny.build_trainer(
        folder, tiny.gpt(), tiny.causal_data(24), library=library, **{**often, **settings}
    )
    trainer.train()
    return trainer


def runs_in(path):
    found = re.search(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return json.loads(found.group(1))


def losses(run):
    (curve,) = [c for c in run["curves"] if (c["split"], c["metric"]) == ("train", "loss")]
    return dict(zip(curve["steps"], curve["values"], strict=True))


def test_the_page_of_a_run_is_built_again_as_the_run_left_it(tmp_path, capsys):
    train(tmp_path)
    page = tmp_path / "report.html"
    first = runs_in(page)
    page.unlink()
    capsys.readouterr()
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == str(page)
    again = runs_in(page)
    assert again["runs"] == first["runs"]
    assert again["defaults"] == first["defaults"]


def test_runs_of_footplate_and_transformers_are_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ours = train(tmp_path / "ours")
    theirs = train(tmp_path / "theirs", transformers)
    assert main(["report", "ours", "theirs"]) == 0
    first, second = runs_in(tmp_path / "comparison.html")["runs"]
    assert (first["name"], second["name"]) == ("ours", "theirs")
    for run, trainer in ((first, ours), (second, theirs)):
        logged = {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry}
        assert losses(run) == pytest.approx(logged, rel=1e-5)
    assert losses(first) == losses(second)


def test_the_page_goes_where_it_is_asked_to_and_is_opened_there(tmp_path, monkeypatch):
    train(tmp_path / "run")
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    target = tmp_path / "my page.html"
    assert main(["report", str(tmp_path / "run"), "--output", str(target), "--open"]) == 0
    assert opened == [target.as_uri()]
    assert runs_in(target)["runs"][0]["step"] == 6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "is not a folder"),
        (["."], "holds neither events.jsonl nor trainer_state.json"),
        ([".", "--port", "80"], "--port is for --serve"),
        ([".", "--serve", "--output", "x"], "exclude each other"),
        ([".", "--serve", "--port", "70000"], "is not a port"),
    ],
)
def test_wrong_use_is_one_line_that_says_what_to_change(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert main(["report", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_port_that_is_taken_is_said(tmp_path, capsys):
    (tmp_path / "trainer_state.json").write_text('{"log_history": []}')
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["report", str(tmp_path), "--serve", "--port", str(port)]) == 2
    assert f"--port {port} cannot be used" in capsys.readouterr().err


def test_another_port_than_the_usual_one_is_said(tmp_path, capsys, monkeypatch):
    (tmp_path / "trainer_state.json").write_text('{"log_history": []}')
    monkeypatch.setattr(ReportServer, "serve_forever", lambda self: None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr("footplate.cli.report.DEFAULT_PORT", port)
        assert main(["report", str(tmp_path), "--serve"]) == 0
    shown = capsys.readouterr()
    found = re.search(r"http://127\.0\.0\.1:(\d+)/", shown.out).group(1)
    assert f"Port {port} cannot be used: Address already in use. Port {found} was free." in shown.err


def test_it_serves_until_it_is_interrupted(tmp_path):
    train(tmp_path)
    command = [sys.executable, "-m", "footplate", "report", str(tmp_path), "--serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        assert process.stdout is not None
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)/", process.stdout.readline()).group(1))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/data.json")
        described = json.loads(connection.getresponse().read())
        connection.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
    assert described["live"] is True
    assert described["runs"][0]["step"] == 6


def search(folder):
    """A real search of two trials."""
    data = tiny.causal_data(8)
    settings = {"max_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
    trainer = tiny.build_trainer(folder, None, data, data, options={"model_init": tiny.gpt}, **settings)
    return trainer.hyperparameter_search({"learning_rate": [1e-3, 1e-2]}, backend="grid", n_trials=2)


def test_the_page_of_a_search_is_built_again_from_its_trials(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "sweep"
    best = search(folder)
    page = folder / "report.html"
    page.unlink(missing_ok=True)
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().out.strip().splitlines()[-1] == str(page)
    described = runs_in(page)["search"]
    assert described["is_over"]
    assert [str(number) for number in described["best"]] == [best.run_id]
    assert [trial["link"] for trial in described["trials"]] == ["./run-0/report.html", "./run-1/report.html"]
    monkeypatch.chdir(tmp_path)
    assert main(["report", "sweep", "--output", "elsewhere.html"]) == 0
    links = [trial["link"] for trial in runs_in(tmp_path / "elsewhere.html")["search"]["trials"]]
    assert links == ["./sweep/run-0/report.html", "./sweep/run-1/report.html"]


def test_a_search_that_gives_signs_of_life_is_running(tmp_path):
    search(tmp_path)
    (tmp_path / ".footplate.lock").write_text("")
    assert main(["report", str(tmp_path)]) == 0
    assert not runs_in(tmp_path / "report.html")["search"]["is_over"]
    os.utime(tmp_path / ".footplate.lock", (1000, 1000))  # of a process that was killed
    assert main(["report", str(tmp_path)]) == 0
    assert runs_in(tmp_path / "report.html")["search"]["is_over"]
