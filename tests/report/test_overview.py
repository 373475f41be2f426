"""The list of all runs below a folder."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace

import pytest

from footplate.report.overview import RunList, sort_rows


def find_nobody(folder):
    return None


def living(is_alive=True, began=2e9, host=None):
    return SimpleNamespace(is_alive=is_alive, pid=41, host=host, began=began, last_sign=2e9)


def rows_of(root, find_life=find_nobody, **options):
    runs = RunList(root, find_life, **options)
    runs.update()
    return {row.path: row for row in runs.rows}


def only_row(written, life=None):
    (row,) = rows_of(written.folder, lambda folder: life).values()
    return row


def test_a_row_tells_where_a_run_is_and_how_good(finished):
    row = only_row(finished)
    assert (row.path, row.name, row.status, row.detail) == (".", "run", "finished", "")
    assert (row.step, row.max_steps, row.loss) == (100, 100, 0.2)
    assert (row.best_name, row.best, row.best_step) == ("eval loss", 0.25, 100)
    assert row.last_time == finished.time
    assert row.size_bytes == finished.path.stat().st_size
    assert row.notes == ()


@pytest.mark.parametrize(
    ("life", "status", "detail"),
    [
        (None, "failed", ""),
        (living(), "running", "process 41"),
        (living(host="far"), "running", "process 41 on far"),
        (living(is_alive=False), "killed", "its process is gone"),
        (living(is_alive=None, host="far"), "silent", "process 41 on far"),
    ],
)
def test_a_run_that_has_not_ended_is_told_by_its_lock(written, life, status, detail):
    written.begin()
    written.log(3, loss=1.0)
    row = only_row(written, life)
    assert (row.status, row.detail) == (status, detail)


@pytest.mark.parametrize(
    ("step", "stopped_by", "status"), [(100, None, "finished"), (40, "max_time", "stopped")]
)
def test_a_run_that_ended_early_was_stopped(written, step, stopped_by, status):
    written.begin()
    written.log(step, loss=1.0)
    written.write("end", step=step, metrics={}, stopped_by=stopped_by)
    row = only_row(written, living(began=0.0))  # the process goes on after training
    assert (row.status, row.detail) == (status, stopped_by or "")


def test_a_run_that_begins_anew_does_not_show_the_numbers_of_the_earlier_one(finished):
    row = only_row(finished, living())
    assert (row.status, row.step, row.loss, row.best, row.last_time) == ("running", 0, None, None, 2e9)


def test_a_failure_is_told_in_its_words(written):
    written.begin()
    written.log(1, loss=1.0)
    message = "Training failed after 1 updates: ValueError: no. All of them are in x."
    written.write("warning", step=1, level="ERROR", message=message)
    row = only_row(written)
    assert (row.status, row.detail) == ("failed", "ValueError: no")


def test_an_evaluation_alone_is_no_failed_training(written):
    written.begin(max_steps=0)
    written.log(0, eval_loss=1.0)
    assert only_row(written).status == "evaluated"


def test_a_run_of_transformers_is_listed_by_its_state(tmp_path):
    history = '[{"loss": 2.0, "step": 5}, {"eval_loss": 1.5, "step": 5}]'
    for name, step in (("whole", 10), ("partial", 5)):
        folder = tmp_path / name / "checkpoint-5"
        folder.mkdir(parents=True)
        text = f'{{"log_history": {history}, "global_step": {step}, "max_steps": 10}}'
        (folder / "trainer_state.json").write_text(text)
    rows = rows_of(tmp_path)
    assert (rows["whole"].status, rows["partial"].status) == ("finished", "unfinished")
    assert (rows["partial"].loss, rows["partial"].best) == (2.0, 1.5)
    assert abs(rows["partial"].last_time - time.time()) < 60


def test_damage_is_told_in_the_row_and_leaves_the_others_alone(tmp_path, finished):
    for name, content in (("state", "{"), ("empty", "")):
        (tmp_path / name).mkdir()
        file = "trainer_state.json" if name == "state" else "events.jsonl"
        (tmp_path / name / file).write_text(content)
    (tmp_path / "odd").mkdir()
    os.mkfifo(tmp_path / "odd" / "events.jsonl")
    with open(finished.path, "a") as file:
        file.write("damaged\n")
    rows = rows_of(tmp_path)
    assert {path: row.status for path, row in rows.items()} == {
        "empty": "damaged", "odd": "damaged", "state": "damaged", "run": "finished",
    }  # fmt: skip
    assert rows["run"].notes == ("1 line is damaged in events.jsonl",)
    assert "trainer_state.json" in rows["state"].notes[0]


def test_a_list_follows_what_is_added(tmp_path, finished, write_run):
    runs = RunList(tmp_path, find_nobody)
    assert runs.update()
    assert not runs.update()
    finished.begin("second")
    finished.log(1, loss=3.0)
    assert runs.update()
    assert (runs.rows[0].step, runs.rows[0].loss) == (1, 3.0)
    other = write_run(tmp_path / "more" / "other")
    other.begin()
    runs._next_search = 0.0  # looking for new runs takes a pause
    assert runs.update()
    assert [row.path for row in runs.rows] == ["run", "more/other"]
    other.path.unlink()
    assert runs.update()
    assert runs.rows[1].path == "more/other"  # until it is looked for again


def test_rows_are_sorted_by_what_people_look_for(tmp_path, write_run):
    for number, (loss, f1) in enumerate([(3.0, 0.1), (1.0, 0.9), (2.0, 0.5)]):
        run = write_run(tmp_path / f"r{number}")
        run.time += number * 1000
        run.begin(settings={"metric_for_best_model": "f1", "greater_is_better": True})
        run.log(number + 1, loss=loss)
        run.log(number + 1, eval_f1=f1)
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "events.jsonl").write_text("\n" * 5000)
    rows = list(rows_of(tmp_path).values())

    def order(by):
        return " ".join(row.path for row in sort_rows(rows, by))

    os.utime(tmp_path / "none" / "events.jsonl", (0, 0))
    rows = list(rows_of(tmp_path).values())
    assert order("age") == "r2 r1 r0 none"
    assert order("name") == "none r0 r1 r2"
    assert order("loss") == "r1 r2 r0 none"
    assert order("best") == "r1 r2 r0 none"
    assert order("step") == "r2 r1 r0 none"
    assert order("size").startswith("none")
    assert order("status").endswith("none")
