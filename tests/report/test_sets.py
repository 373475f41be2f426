"""Notes of evaluation sets: what a page keeps of them, and what it refuses."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from footplate.evaluation.classes import summarize_classes
from footplate.report.answers import AnswerNotes
from footplate.report.classes import ClassNotes
from footplate.report.page import describe_runs, to_script_json
from footplate.report.sets import MOST_KEPT, MOST_SETS
from footplate.report.source import RunSource
from footplate.resumed import ResumePoint

LABELS = np.arange(60) % 3


def classes(step, num_wrong=6, name="eval", is_best=False, **changes):
    """The note of an evaluation with so many wrong rows, as it comes out of a journal."""
    chosen = LABELS.copy()
    chosen[:num_wrong] = (chosen[:num_wrong] + 1) % 3
    scores = np.eye(3)[chosen] * 2
    event = {"kind": "classes", "step": step, "set": name, "is_best": is_best}
    return json.loads(json.dumps({**event, **summarize_classes(scores, LABELS).to_event(), **changes}))


def answers(step, f1=50.0, **changes):
    event = {"kind": "answers", "step": step, "set": "eval", "is_best": False, "num_items": 9}
    tables = {"answer": [["1", 4, 25.0, 50.0], ["2", 5, 20.0, 50.0]]}
    return {**event, "exact_match": 22.2, "f1": f1, "tables": tables, **changes}


def keep(*events, notes=ClassNotes):
    found = notes()
    for event in events:
        found.add(event)
    return found


def test_the_latest_and_the_best_of_each_set_are_kept():
    found = keep(
        classes(10), classes(20, 2, is_best=True), classes(20, 9, name="other"), classes(30, 4)
    ).to_plain()
    assert [one["name"] for one in found] == ["eval", "other"]
    assert [found[0][which]["step"] for which in ("latest", "best")] == [30, 20]
    assert [one["is_chosen"] for one in found] == [True, False]


def test_where_the_run_does_not_say_the_highest_f1_is_the_best():
    (one,) = keep(classes(10, 9), classes(20, 2), classes(30, 5)).to_plain()
    assert (one["best"]["step"], one["is_chosen"]) == (20, False)


def test_f1_of_each_class_over_the_run():
    (one,) = keep(classes(10, 30), classes(20, 0)).to_plain()
    assert one["history"]["steps"] == [10, 20]
    assert [line[-1] for line in one["history"]["f1"]] == [1000] * 3
    first = summarize_classes(np.where(np.arange(60) < 30, (LABELS + 1) % 3, LABELS), LABELS).f1
    assert [line[0] for line in one["history"]["f1"]] == np.round(first * 1000).astype(int).tolist()


def test_thousands_of_evaluations_keep_a_few():
    notes = keep(*[classes(step, step % 7) for step in range(1, 2001)])
    (one,) = notes.to_plain()
    assert len(one["history"]["steps"]) <= MOST_KEPT + 1
    assert one["latest"]["step"] == 2000


def test_a_resume_drops_what_it_makes_again_and_the_earlier_best_comes_back():
    notes = keep(
        classes(10, 5, is_best=True), classes(20, 3, is_best=True), classes(30, 9), classes(30, 9, name="new")
    )
    notes.cut(ResumePoint(15))
    (one,) = notes.to_plain()
    assert (one["latest"]["step"], one["best"]["step"]) == (10, 10)
    notes.cut(ResumePoint(0))
    assert notes.to_plain() is None


def test_an_evaluation_that_is_made_again_replaces_the_first():
    (one,) = keep(classes(10, 5), classes(10, 1)).to_plain()
    assert one["history"]["steps"] == [10]
    assert one["latest"]["num_right"] == 59


def test_an_evaluation_at_the_end_of_a_script_does_not_take_the_best_away():
    last, again = classes(20, 2, is_best=True), classes(20, 2)
    (one,) = keep(classes(10, 5, is_best=True), last, again).to_plain()
    assert (one["best"]["step"], one["is_chosen"]) == (20, True)


WRONG = [
    *({name: None} for name in ("set", "step", "form", "listed", "support", "hits", "names", "macro_f1")),
    {"step": True},
    {"step": -1},
    {"form": "other"},
    {"listed": [0, 0, 1]},
    {"listed": [0]},
    {"listed": list(range(10_000))},
    {"support": [1, 2]},
    {"support": [1, 2, math.nan]},
    {"support": [1, 2, -3]},
    {"support": [1, 2, 10**400]},
    {"hits": [99, 99, 99]},
    {"names": ["a"]},
    {"macro_f1": math.inf},
    {"num_items": "many"},
]


@pytest.mark.parametrize("changes", WRONG, ids=lambda changes: str(changes)[:40])
def test_a_note_with_wrong_values_is_ignored(changes):
    assert keep({**classes(10), **changes}).to_plain() is None


@pytest.mark.parametrize(
    "changes",
    [
        {"cells": "x", "bins": "y"},
        {"cells": [[0, 1]], "bins": [[1, 2, 0.5]]},
        {"cells": [[0, 1, 2.5]], "bins": [[1, 1, math.nan]]},
        {"cells": [[0, 1, 2]] * 1000, "bins": [[1, 1, 0.5]] * 1000},
        {"cells": None, "bins": [], "calibration_error": None},
    ],
)
def test_a_matrix_or_bins_with_wrong_values_are_left_out_alone(changes):
    (one,) = keep(classes(10, **changes)).to_plain()
    assert (one["latest"]["cells"], one["latest"]["bins"]) == (None, None)
    assert one["latest"]["support"] == [20, 20, 20]


def test_confusions_of_unknown_classes_are_left_out():
    (one,) = keep(classes(10, cells=[[0, 1, 2], [7, 1, 3], [1, 1, 4]])).to_plain()
    assert one["latest"]["cells"] == [[0, 1, 2]]


def test_no_more_sets_than_a_page_can_show():
    assert len(keep(*[classes(1, name=f"eval_{n}") for n in range(100)]).to_plain()) == MOST_SETS


def test_answers_are_kept_and_wrong_ones_ignored():
    (one,) = keep(answers(10, 40.0), answers(20, 60.0), answers(30, 50.0), notes=AnswerNotes).to_plain()
    assert (one["latest"]["step"], one["best"]["step"]) == (30, 20)
    for changes in (
        *({"tables": value} for value in (None, {}, {"answer": [["1", 2, 3]]}, {"answer": [[1, 2, 3, 4]]})),
        *({"tables": {"answer": [["1", 2, value, 4.0]]}} for value in (-1, 101, math.nan, "x", None)),
        {"tables": {"answer": [["1", 2, 3.0, 4.0]] * 1000}},
        {"f1": "high"},
        {"num_items": None},
    ):
        assert keep(answers(10, **changes), notes=AnswerNotes).to_plain() is None


def test_a_page_with_hostile_notes_is_still_strict_json(written):
    written.begin()
    written.train(1, 3)
    for event in (classes(1), answers(1), *[{**classes(2), **changes} for changes in WRONG]):
        written.write(**{**event, "names": ["<script>", "\ud800", "x" * 5000]} if "names" in event else event)
    source = RunSource(written.folder)
    source.update()
    page = to_script_json(describe_runs([source.data]))
    (one,) = json.loads(page)["runs"][0]["notes"]["classes"]
    assert [len(name) for name in one["latest"]["names"]] == [8, 1, 100]


def test_a_resumed_run_in_a_journal_shows_only_what_it_kept(written):
    written.begin()
    for event in (classes(10, 5), classes(20, 1)):
        written.log(event["step"], loss=1.0)
        written.write(**event)
    written.begin(first_step=10)
    source = RunSource(written.folder)
    source.update()
    (one,) = source.data.to_plain(100)["notes"]["classes"]
    assert (one["latest"]["step"], one["best"]["step"]) == (10, 10)
