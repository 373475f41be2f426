"""The hardest rows in a report: the newest note, of which only what has the right form."""

from __future__ import annotations

import json

import pytest

from footplate.report.data import RunData
from footplate.report.hardest import MAX_BINS, MAX_ROWS, HardestKeeper
from footplate.report.page import build_page, describe_runs
from footplate.resumed import ResumePoint

ROWS = [
    {"row": 7, "loss": "nan", "outlier": True, "input": "not finite", "target": "a", "prediction": "b"},
    {
        "row": 3,
        "loss": 4.5,
        "outlier": True,
        "input": "x",
        "target": "a",
        "prediction": "b",
        "correct": False,
    },
    {"row": 5, "loss": 0.5, "outlier": False, "input": "y", "target": "a", "prediction": "a"},
]
NOTE = {
    "kind": "hardest",
    "step": 30,
    "rows": ROWS,
    "num_rows": 100,
    "num_outliers": 2,
    "num_nonfinite": 1,
    "total": 100,
    "mean": 0.2,
    "limit": 1.5,
    "quantiles": {"median": 0.1, "q3": 0.3, "odd": 4},
    "bins": [90, 6, 0, 3],
    "edges": [0.0, 4.5],
    "seconds": 0.1,
    "is_whole": True,
}


def keep(**changed):
    keeper = HardestKeeper()
    keeper.add({**NOTE, **changed})
    return keeper.to_plain()


def test_a_note_is_kept_with_all_that_is_shown():
    found = keep()
    assert found["rows"] == ROWS
    assert found["bins"] == [90, 6, 0, 3]
    assert found["quantiles"] == {"median": 0.1, "q3": 0.3}
    assert (found["num_rows"], found["limit"], found["is_whole"]) == (100, 1.5, True)


def test_the_newest_note_is_shown():
    keeper = HardestKeeper()
    assert keeper.to_plain() is None
    keeper.add(NOTE)
    keeper.add({**NOTE, "num_rows": 7})
    assert keeper.to_plain()["num_rows"] == 7


def test_a_resumed_run_drops_a_note_that_it_makes_again():
    keeper = HardestKeeper()
    keeper.add(NOTE)
    keeper.cut(ResumePoint(30))
    assert keeper.to_plain() is not None
    keeper.cut(ResumePoint(20))
    assert keeper.to_plain() is None


@pytest.mark.parametrize(
    "changed",
    [
        {"rows": None},
        {"rows": "many"},
        {"num_rows": None},
        {"num_rows": -1},
        {"num_outliers": float("nan")},
        {"num_nonfinite": True},
    ],
)
def test_a_note_without_the_right_form_is_ignored(changed):
    assert keep(**changed) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"bins": None},
        {"bins": ["1", 2]},
        {"bins": [-1]},
        {"edges": [1.0, 1.0]},
        {"edges": [0.0, float("inf")]},
        {"edges": [0.0]},
        {"edges": {"low": 0}},
    ],
)
def test_wrong_bins_are_left_out(changed):
    found = keep(**changed)
    assert (found["bins"], found["edges"]) == ([], [])
    assert found["rows"] == ROWS


def test_what_is_kept_is_bounded_whatever_the_journal_holds():
    deep = []
    for _ in range(50):
        deep = [deep]
    row = {f"column {i} {'n' * 500}": "t" * 10_000 for i in range(500)}
    found = keep(
        rows=[row, "no row", {"input": deep, "loss": 10**400}] * 1000,
        bins=[1] * 100_000,
        quantiles={str(i): i for i in range(10_000)},
    )
    assert len(found["rows"]) <= MAX_ROWS
    assert len(found["bins"]) == MAX_BINS
    assert len(json.dumps(found, allow_nan=False)) < 3_000_000


def test_the_page_of_a_run_holds_its_hardest_rows(tmp_path):
    data = RunData(tmp_path)
    data.add({"kind": "begin", "time": 1.0, "run_id": "a", "max_steps": 30, "first_step": 0})
    assert describe_runs([data])["runs"][0]["notes"]["hardest"] is None
    data.add({**NOTE, "time": 2.0})
    page = build_page(describe_runs([data]))
    assert '"input":"not finite"' in page
