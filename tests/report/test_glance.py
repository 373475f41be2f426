"""A quick look at a run tells what a full reading tells."""

from __future__ import annotations

import json
import math
import random

import pytest

from footplate.report.glance import Glance
from footplate.report.source import RunSource


def facts_of(source):
    data = source.data
    loss = data.curves.get(("train", "loss"))
    return {
        "step": data.step,
        "over": data.is_over,
        "loss": loss.values[-1] if loss is not None and loss.values else None,
        "best": data.find_best(),
        "saves": data.saves,
        "last": data.last_time,
        "id": data.run_id,
        "resumed": data.resumed_at,
    }


def read_fully(folder):
    source = RunSource(folder)
    source.update()
    return source


def look(folder, **options):
    glance = Glance(folder, **options)
    glance.update()
    return glance


@pytest.mark.parametrize("seed", range(20))
def test_it_tells_what_a_full_reading_tells_at_every_moment(written, seed):
    """Begins, resumes, evaluations, checkpoints and ends in any order, read while they are written."""
    chance = random.Random(seed)
    following = Glance(written.folder)
    run_id, step = "first", 0
    written.begin(run_id)
    for _ in range(60):
        kind = chance.choice(["log"] * 8 + ["eval"] * 2 + ["save", "resume", "other run", "end", "cut"])
        step += kind == "log"
        if kind == "log":
            written.log(step, loss=chance.random())
        elif kind == "eval":
            written.log(step, eval_loss=chance.random(), eval_f1=chance.random())
        elif kind == "save":
            written.write("save", step=step, folder=f"checkpoint-{step}", best_step=step, best_metric=0.5)
        elif kind == "resume":
            step = chance.randint(0, step)
            written.begin(run_id, first_step=step)
        elif kind == "other run":
            run_id, step = f"{run_id}x", 0
            written.begin(run_id, max_steps=chance.choice([0, 100]))
        elif kind == "end":
            written.end(step)
        else:
            with open(written.path, "a") as file:
                file.write('{"kind": "log", "step": 9\n')
        if chance.random() < 0.3:
            following.update()
    following.update()
    assert facts_of(look(written.folder)) == facts_of(following) == facts_of(read_fully(written.folder))


def test_most_lines_are_not_parsed(written, monkeypatch):
    written.begin()
    for step in range(1, 1001):
        written.log(step, loss=1 / step)
    written.log(1000, eval_loss=0.5)
    parsed = []
    real = json.loads
    monkeypatch.setattr("footplate.disk.json.loads", lambda text, **k: parsed.append(1) or real(text, **k))
    glance = look(written.folder)
    assert facts_of(glance)["loss"] == 1 / 1000
    assert len(parsed) < 10


def test_curves_have_about_as_many_points_as_were_asked_for(written):
    written.begin(max_steps=5000)
    for step in range(1, 5001):
        written.log(step, loss=math.sin(step / 500))
    curve = look(written.folder, num_points=100).data.curves["train", "loss"]
    assert 80 <= len(curve.steps) <= 120
    assert curve.steps[-1] == 5000
    gaps = [late - early for early, late in zip(curve.steps, curve.steps[1:], strict=False)]
    assert max(gaps) <= 70
    short = look(written.folder, num_points=100_000).data.curves["train", "loss"]
    assert len(short.steps) == 5000


@pytest.mark.parametrize("damage", [b'{"kind": "log", "st', b"\x00\xff\n", b'{"kind": "log", }\n', b"[]\n"])
def test_damage_is_counted_and_the_log_before_it_is_told(finished, damage):
    content = finished.path.read_bytes()
    finished.path.write_bytes(content[: content.rindex(b'{"kind": "log"')] + damage.rstrip(b"\n") + b"\n")
    glance = look(finished.folder)
    assert (glance.data.step, glance.problem) == (100, None)
    assert glance.num_damaged == 1
    assert glance.data.curves["train", "loss"].values[-1] == pytest.approx(0.2)


def test_a_line_that_is_still_being_written_is_no_damage(written):
    written.begin()
    written.log(1, loss=2.0)
    with open(written.path, "a") as file:
        file.write('{"kind": "log", "step": 2, "lo')
    glance = look(written.folder)
    assert (glance.data.step, glance.num_damaged) == (1, 0)
    with open(written.path, "a") as file:
        file.write('gs": {"loss": 1.0}}\n')
    assert glance.update()
    assert (glance.data.step, glance.num_damaged) == (2, 0)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"log_history": 3}', "null", '{"a": 1, "a": 2}'])
def test_a_damaged_state_is_never_an_error(tmp_path, content):
    (tmp_path / "trainer_state.json").write_text(content)
    glance = look(tmp_path)
    assert (glance.problem is None) == (content == '{"log_history": 3}')


def test_why_a_run_ended_is_that_of_its_last_leg(written):
    written.begin()
    written.log(1, loss=1.0)
    message = "Training failed after 1 updates: ValueError: no. All of them are in x."
    written.write("warning", step=1, level="ERROR", message=message)
    glance = look(written.folder)
    assert glance.reason == "ValueError: no"
    written.begin(first_step=1)
    glance.update()
    assert glance.reason is None
    written.write("end", step=3, metrics={}, stopped_by="SIGTERM")
    glance.update()
    assert glance.reason == "SIGTERM"


def test_a_journal_that_was_replaced_is_read_anew(written):
    written.begin()
    written.write("nonsense")
    with open(written.path, "a") as file:
        file.write("damaged\n")
    written.log(5, loss=1.0)
    glance = look(written.folder)
    assert (glance.data.step, glance.num_damaged) == (5, 1)
    written.path.unlink()
    glance.update()
    written.begin("second")
    written.log(2, loss=1.0)
    assert glance.update()
    assert (glance.data.step, glance.num_damaged) == (2, 0)
