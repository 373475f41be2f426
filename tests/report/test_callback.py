"""A page that follows a real run, and never gets in its way."""

from __future__ import annotations

import csv
import json
import logging
import os
import re
import subprocess
import sys
import textwrap
import time
from itertools import pairwise
from pathlib import Path

import pytest

import tiny
from footplate.report import callback as module
from footplate.report.callback import ReportWriter


def train(folder, **settings):
    trainer = tiny.build_trainer(
        folder,
        tiny.Regression(),
        tiny.regression_data(64),
        tiny.regression_data(16, seed=1),
        **{"max_steps": 12, "logging_steps": 1, "eval_strategy": "steps", "eval_steps": 4, **settings},
    )
    trainer.train()
    return trainer


def data_in(folder):
    text = Path(folder, "report.html").read_text(encoding="utf-8")
    found = re.search(r'id="data">(.*?)</script>', text, flags=re.DOTALL)
    return json.loads(found.group(1))


def curves_in(folder):
    return {(c["split"], c["metric"]): c for c in data_in(folder)["runs"][0]["curves"]}


def test_a_run_leaves_a_page_with_all_it_logged(tmp_path):
    trainer = train(tmp_path)
    run = data_in(tmp_path)["runs"][0]
    assert (run["status"], run["step"]) == ("finished", 12)
    curves = curves_in(tmp_path)
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert curves["train", "loss"]["values"] == pytest.approx(logged, rel=1e-5)
    assert curves["train", "learning_rate"]["steps"] == list(range(1, 13))
    assert curves["eval", "loss"]["steps"] == [4, 8, 12]
    assert {"forward", "backward", "optimizer", "evaluation"} <= run["parts"]["parts"].keys()
    assert run["settings"]["max_steps"] == 12
    assert run["versions"]["torch"]


def test_evaluations_and_predictions_after_the_run_are_added(tmp_path):
    trainer = train(tmp_path, eval_strategy="no")
    assert ("eval", "loss") not in curves_in(tmp_path)
    trainer.evaluate()
    assert curves_in(tmp_path)["eval", "loss"]["steps"] == [12]
    trainer.predict(tiny.regression_data(8, seed=2))
    assert ("test", "loss") in curves_in(tmp_path)


def test_the_log_is_left_as_a_table(tmp_path):
    trainer = train(tmp_path)
    with open(tmp_path / "log_history.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [entry["step"] for entry in trainer.state.log_history]
    assert float(rows[0]["loss"]) == trainer.state.log_history[0]["loss"]


def test_a_page_that_cannot_be_written_is_said_once_and_stops_nothing(tmp_path, caplog):
    (tmp_path / "report.html").mkdir(parents=True)
    with caplog.at_level(logging.WARNING):
        trainer = train(tmp_path)
    assert trainer.state.global_step == 12
    assert [r.message for r in caplog.records if "report.html" in r.message and "could not" in r.message]
    assert sum("could not be written" in r.message for r in caplog.records) == 1
    assert not list(tmp_path.glob(".report.html*"))


def test_weights_are_the_same_with_and_without_a_report(tmp_path):
    plain = train(tmp_path / "plain", report=False)
    shown = train(tmp_path / "shown", report=True)
    assert not (tmp_path / "plain" / "report.html").exists()
    assert plain.model.slope.item() == shown.model.slope.item()


def test_pages_come_no_sooner_than_a_hundred_times_what_one_takes(written, monkeypatch):
    monkeypatch.setattr(module, "LEAST_PAUSE", 0.01)
    written.begin()
    writer = ReportWriter(written.folder)
    took = []
    build = writer._build

    def timed():
        seconds = build()
        took.append((time.monotonic(), seconds))
        return seconds

    monkeypatch.setattr(writer, "_build", timed)
    until = time.monotonic() + 60  # the pause is longer on a busy machine
    step = 0
    while len(took) < 3 and time.monotonic() < until:
        step += 1
        written.log(step, loss=1.0)
        writer.request()
        time.sleep(0.005)
    in_time = list(took)
    writer.stop()
    assert len(in_time) >= 2
    for (first, seconds), (second, _) in pairwise(in_time):
        assert second - first >= 100 * seconds
    assert data_in(written.folder)["runs"][0]["step"] == step  # the last page has all


def test_requests_return_at_once_and_the_thread_ends_with_the_run(written):
    written.begin()
    writer = ReportWriter(written.folder)
    start, cpu_start = time.perf_counter(), time.thread_time()
    for _ in range(10_000):
        writer.request()
    assert time.thread_time() - cpu_start < 0.5
    assert time.perf_counter() - start < 10  # none of them waits for a page
    thread = writer._thread
    writer.stop()
    assert not thread.is_alive()
    assert writer.num_built == 1


def test_a_run_that_is_freed_on_the_thread_of_its_page_gets_its_last_page(written, monkeypatch):
    """Memory is collected on any thread, also in the middle of a page."""
    written.begin()
    written.log(1, loss=1.0)
    writer = ReportWriter(written.folder)
    failures, update = [], writer._source.update

    def update_and_free():
        update()
        if not failures:
            failures.append(None)
            try:
                writer.stop_after_error()
            except RuntimeError as error:
                failures.append(error)
            written.log(2, loss=3.5)  # what the page under way does not hold yet

    monkeypatch.setattr(writer._source, "update", update_and_free)
    writer.request()
    thread = writer._thread
    thread.join(60)
    assert (failures, writer.num_built) == ([None], 2)
    run = data_in(written.folder)["runs"][0]
    assert (run["step"], run["status"]) == (2, "stopped")


FAILS = """
    import sys
    import tiny
    from footplate import TrainerCallback

    class Fail(TrainerCallback):
        wants_step_data = False
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 7:
                raise RuntimeError("out of luck")

    tiny.build_trainer(
        sys.argv[1], tiny.Regression(), tiny.regression_data(64), max_steps=12, logging_steps=1,
        options={"callbacks": [Fail]},
    ).train()
"""


def test_a_run_that_dies_of_an_error_leaves_a_page_up_to_there(tmp_path):
    tests = Path(tiny.__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FAILS), str(tmp_path / "run")],
        env={**os.environ, "PYTHONPATH": str(tests)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "out of luck" in done.stderr
    assert done.returncode == 1
    run = data_in(tmp_path / "run")["runs"][0]
    assert run["status"] == "stopped"
    assert curves_in(tmp_path / "run")["train", "loss"]["steps"] == [1, 2, 3, 4, 5, 6]


def test_a_second_run_of_the_same_trainer_has_a_page_of_its_own(tmp_path):
    trainer = train(tmp_path)
    first = data_in(tmp_path)["runs"][0]["run_id"]
    trainer.args.max_steps = 5
    trainer.train()
    run = data_in(tmp_path)["runs"][0]
    assert run["run_id"] != first
    assert run["step"] == 5


def test_a_resumed_run_goes_on_in_the_same_page(tmp_path):
    train(tmp_path, save_strategy="steps", save_steps=4, max_steps=12)
    arguments = {"save_strategy": "steps", "save_steps": 4, "max_steps": 12, "logging_steps": 1}
    again = tiny.build_trainer(tmp_path, tiny.Regression(), tiny.regression_data(64), **arguments)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
    run = data_in(tmp_path)["runs"][0]
    assert run["resumed_at"] == [8]
    assert curves_in(tmp_path)["train", "loss"]["steps"] == list(range(1, 13))
    assert [c["step"] for c in run["checkpoints"]] == [4, 8, 12]


def test_the_callback_is_the_last_of_the_trainer_s_own(tmp_path):
    trainer = tiny.build_trainer(tmp_path, tiny.Regression(), tiny.regression_data(8), report=True)
    handler = trainer.callback_handler
    assert [type(callback).__name__ for callback in handler.recorders] == ["JournalCallback"]
    assert [type(callback).__name__ for callback in handler.reporters] == ["ReportCallback"]


def test_a_run_that_fails_at_once_leaves_the_page_of_the_one_before(tmp_path):
    train(tmp_path)
    first = data_in(tmp_path)["runs"][0]
    env = {**os.environ, "PYTHONPATH": str(Path(tiny.__file__).parent)}
    script = textwrap.dedent(FAILS).replace("== 7", "== 1")
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], env=env, capture_output=True, text=True
    )
    assert "out of luck" in done.stderr
    run = data_in(tmp_path)["runs"][0]
    assert (run["run_id"], run["step"]) == (first["run_id"], 12)
    assert run["status"] == "finished"


def test_a_table_with_words_that_are_no_text_stops_nothing(tmp_path):
    trainer = train(tmp_path)
    trainer.state.log_history.append({"note": "\ud800", "step": 12})
    trainer.evaluate()
    assert "ud800" in (tmp_path / "log_history.csv").read_text(encoding="utf-8")
