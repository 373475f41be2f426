"""The journal on disk: whole after a kill, readable with anything in it, quiet on a full disk."""

from __future__ import annotations

import json
import logging
import math
import os
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny
from footplate.integrations.journal import JOURNAL_NAME, Journal, last_run, read_events


def read(folder: Path) -> list[dict]:
    return list(read_events(folder / JOURNAL_NAME))


def test_every_event_is_a_line_that_is_there_when_write_returns(tmp_path):
    journal = Journal(tmp_path)
    for step in range(5):
        journal.write("log", step=step, logs={"loss": step / 2})
        lines = (tmp_path / JOURNAL_NAME).read_text().splitlines()
        assert len(lines) == step + 1
        event = json.loads(lines[-1])
        assert (event["kind"], event["step"], event["logs"]) == ("log", step, {"loss": step / 2})
        assert abs(event["time"] - time.time()) < 60


def test_any_value_survives_or_becomes_text(tmp_path):
    loop: dict[str, object] = {}
    loop["self"] = loop
    values = {
        "nan": float("nan"),
        "inf": -math.inf,
        "float32": np.float32(0.5),
        "tensor": torch.tensor([1.0, 2.0], requires_grad=True),
        "scalar": torch.tensor(3, dtype=torch.bfloat16),
        "path": Path("a"),
        "한국어": "값 </script> \ud800 \n",
    }
    journal = Journal(tmp_path)
    journal.write("log", step=1, logs=values)
    journal.write("log", step=2, logs={("a", 1): 2.0, "loss": 0.5})
    journal.write("log", step=3, logs=loop)
    first, second, third = read(tmp_path)
    logs = first["logs"]
    assert math.isnan(logs["nan"])
    assert logs["inf"] == -math.inf
    assert (logs["float32"], logs["tensor"], logs["scalar"], logs["path"]) == (0.5, [1.0, 2.0], 3.0, "a")
    assert logs["한국어"] == "값 </script> \ud800 \n"
    assert second["logs"] == {"('a', 1)": 2.0, "loss": 0.5}
    assert third["step"] == 3


def test_a_kill_leaves_every_line_up_to_the_last(tmp_path):
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        journal = Journal(tmp_path)
        for step in range(10**9):
            journal.write("log", step=step, logs={"loss": 0.1, "text": "x" * (step % 3000)})
            os.write(tell, b".")
    num_told = sum(len(os.read(told, 64)) for _ in range(20))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(tell)
    while rest := os.read(told, 65536):
        num_told += len(rest)
    steps = [event["step"] for event in read(tmp_path)]
    assert steps == list(range(len(steps)))
    assert num_told <= len(steps) <= num_told + 1


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_line_that_was_cut_is_passed_over_and_the_next_leg_starts_on_its_own(tmp_path, cut):
    journal = Journal(tmp_path)
    for step in (1, 2):
        journal.write("log", step=step, logs={"text": "값"})
    journal.close()
    data = (tmp_path / JOURNAL_NAME).read_bytes()
    (tmp_path / JOURNAL_NAME).write_bytes(data[:-cut])
    assert [event["step"] for event in read(tmp_path)] == ([1, 2] if cut == 1 else [1])
    Journal(tmp_path).write("log", step=3)
    assert [event["step"] for event in read(tmp_path)] == ([1, 2, 3] if cut == 1 else [1, 3])


def test_lines_that_are_no_events_are_passed_over(tmp_path):
    (tmp_path / JOURNAL_NAME).write_bytes(b'\x00\x00\n[1]\n"a"\n{"step": 1}\n\xff\xfe\n{"kind": "log"}\n\n')
    assert read(tmp_path) == [{"kind": "log"}]


def test_a_full_disk_is_said_once_and_the_rest_is_kept_when_there_is_room_again(tmp_path, caplog):
    earlier = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    journal = Journal(tmp_path)
    journal.write("log", step=0, text="x" * 100)
    size = (tmp_path / JOURNAL_NAME).stat().st_size
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 30, hard))  # room for a part of a line
        for step in (1, 2, 3):
            journal.write("log", step=step, text="x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, earlier)
    journal.write("log", step=4)
    assert [event["step"] for event in read(tmp_path)] == [0, 4]
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert JOURNAL_NAME in warnings[0]


def test_a_device_that_takes_nothing_stops_nothing(tmp_path, caplog):
    os.symlink("/dev/full", tmp_path / JOURNAL_NAME)
    journal = Journal(tmp_path)
    journal.write("log", step=1)
    journal.write("log", step=2)
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_no_file_is_set_aside_and_the_events_are_kept(tmp_path, caplog, kind):
    (os.mkfifo if kind == "pipe" else os.mkdir)(tmp_path / JOURNAL_NAME)
    journal = Journal(tmp_path)
    journal.write("log", step=1)
    journal.write("log", step=2)
    assert [event["step"] for event in read(tmp_path)] == [1, 2]
    assert caplog.text.count("events.jsonl was not a file. It is now ") == 1


def test_a_journal_with_a_pipe_does_not_hang_a_run(tmp_path):
    os.mkfifo(tmp_path / JOURNAL_NAME)
    tiny.build_trainer(tmp_path, tiny.Regression(), tiny.regression_data(), max_steps=2).train()
    assert [event["kind"] for event in read(tmp_path)][-1] == "end"


@pytest.mark.parametrize(
    "line",
    [
        b'{"kind": 5}',
        b'{"kind": "log", "step": "1"}',
        b'{"kind": "log", "step": 1, "number": "x"}',
        b'{"kind": "begin", "first_step": null}',
        b'{"kind": "log", "step": 1, "logs": [1]}',
        b'{"kind": "log", "step": 1e999}',
        b'{"kind": "samples", "rows": {"a": 1}}',
        b'{"kind": "log", "logs": ' + b'{"a":' * 100 + b"1" + b"}" * 101,
        b"[" * 100_000,
    ],
)
def test_lines_of_other_types_are_left_out(tmp_path, line):
    (tmp_path / JOURNAL_NAME).write_bytes(line + b'\n{"kind": "log", "step": 3}\n')
    assert read(tmp_path) == [{"kind": "log", "step": 3}]
    assert last_run(read(tmp_path)) == [{"kind": "log", "step": 3}]


def test_a_line_without_end_does_not_fill_the_memory(tmp_path):
    with open(tmp_path / JOURNAL_NAME, "wb") as file:
        file.truncate(300 << 20)
    with open(tmp_path / JOURNAL_NAME, "ab") as file:
        file.write(b'\n{"kind": "log"}\n')
    assert read(tmp_path) == [{"kind": "log"}]


def test_a_folder_that_was_removed_is_made_again(tmp_path):
    journal = Journal(tmp_path / "run")
    journal.write("log", step=1)
    subprocess.run(["rm", "-r", str(tmp_path / "run")], check=True)
    journal.write("log", step=2)
    assert [event["step"] for event in read(tmp_path / "run")] == [2]


def test_two_processes_may_append_to_one_journal(tmp_path):
    child = os.fork()
    for step in range(500):
        Journal(tmp_path).write("warning" if child else "log", step=step, text="x" * 500)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    events = read(tmp_path)
    for kind in ("warning", "log"):
        assert [event["step"] for event in events if event["kind"] == kind] == list(range(500))


# ---- which of the events belong to the last run ----


def begin(run_id: str, step: int = 0, num_logs: int = 0, max_steps: int = 10) -> dict:
    named = {"run_id": run_id, "first_step": step, "num_logs": num_logs, "max_steps": max_steps}
    return {"kind": "begin", "step": step, **named}


def log(step: int, number: int | None = None, value: float = 0.0) -> dict:
    return {"kind": "log", "step": step, "value": value, **({"number": number} if number else {})}


def test_a_resume_drops_the_points_past_it():
    events = [
        begin("a"),
        *(log(n, n) for n in range(1, 6)),
        begin("a", 3, 3),
        *(log(n, n, 1) for n in (4, 5)),
    ]
    kept = last_run(events)
    assert [(e["step"], e["value"]) for e in kept if e["kind"] == "log"] == [
        (1, 0.0),
        (2, 0.0),
        (3, 0.0),
        (4, 1),
        (5, 1),
    ]
    assert [e["kind"] for e in kept].count("begin") == 2


def test_a_resume_at_the_last_step_drops_what_only_the_end_logged():
    summary = {**log(4, 5), "kind": "log"}
    events = [begin("a"), *(log(n, n) for n in range(1, 5)), summary, {"kind": "end", "step": 4}]
    kept = last_run([*events, begin("a", 4, 4, max_steps=8), log(5, 5)])
    assert [(e["step"], e["number"]) for e in kept if e["kind"] == "log"] == [(n, n) for n in range(1, 6)]
    assert not [e for e in kept if e["kind"] == "end"]


def test_lines_without_numbers_go_by_their_step():
    events = [begin("a"), log(1), log(2), {"kind": "samples", "step": 2}, {"kind": "warning", "step": 2}]
    kept = last_run([*events, begin("a", 1, 1), log(2)])
    assert [e["kind"] for e in kept] == ["begin", "log", "warning", "begin", "log"]


def test_another_run_in_the_folder_pushes_the_older_one_aside():
    kept = last_run([begin("a"), log(1, 1), begin("b"), log(2, 1)])
    assert [e.get("run_id", e["step"]) for e in kept] == ["b", 2]


def test_an_evaluation_alone_does_not():
    trained = [begin("a"), log(1, 1)]
    assert last_run([*trained, begin("b", max_steps=0), log(0, 1)]) == trained
    assert last_run([begin("b", max_steps=0), log(0, 1)]) == [begin("b", max_steps=0), log(0, 1)]
    assert last_run([*trained, begin("b", max_steps=0), log(0, 1), begin("a", 1, 1), log(2, 2)]) == [
        *trained,
        begin("a", 1, 1),
        log(2, 2),
    ]


def test_a_file_that_was_removed_begins_again_with_the_run(tmp_path):
    journal = Journal(tmp_path / "run")
    journal.write("begin", run_id="a")
    journal.write("log", step=1)
    shutil.rmtree(tmp_path / "run")
    journal.write("log", step=2)
    assert [event.get("step", event["kind"]) for event in read_events(journal.path)] == ["begin", 2]
