"""The modules of a run over its steps: bounded, cut at a resume, and deaf to what is no measurement."""

from __future__ import annotations

import json
import math

import pytest

from footplate.report import read_modules
from footplate.report.data import RunData
from footplate.report.glance import Glance
from footplate.report.modules import MAX_COLUMNS, MAX_NAMED, MAX_ROWS, ModuleTable
from footplate.report.page import describe_runs, to_script_json
from footplate.report.source import RunSource
from footplate.resumed import ResumePoint

NAMES = ["words", "layer.0", "layer.1"]


def note(step, *, names=None, **values):
    """What a run notes of an update."""
    given = {"grad_norm": [0.1, 0.2, step], "update_ratio": [1e-3] * 3, "weight_norm": [1.0] * 3, **values}
    return {"kind": "modules", "step": step, **given, **({"names": names} if names else {})}


def table_of(*events):
    table = ModuleTable()
    for event in events:
        table.add(event)
    return table


def test_names_of_the_first_note_are_those_of_the_later_ones():
    plain = table_of(note(5, names=NAMES), note(10)).to_plain()
    assert plain["names"] == NAMES
    assert plain["steps"] == [5, 10]
    assert plain["grad_norm"] == [[0.1, 0.2, 5], [0.1, 0.2, 10]]
    assert plain["num_not_finite"] == 0


def test_without_a_measured_update_there_is_nothing():
    assert table_of().to_plain() is None
    assert table_of(note(5)).to_plain() is None  # nobody knows which modules these are


def test_a_long_run_has_no_more_columns_and_its_last_one_stays():
    table = table_of(note(1, names=NAMES), *(note(step) for step in range(2, 5001)))
    plain = table.to_plain()
    assert MAX_COLUMNS / 2 <= len(plain["steps"]) <= MAX_COLUMNS + 1
    assert plain["steps"][-1] == 5000
    assert len(set(map(len, (plain[key] for key in ("steps", "grad_norm", "update_ratio"))))) == 1


def test_modules_that_are_trained_later_or_no_longer_have_empty_places():
    later = {key: [0.5, 0.7] for key in ("grad_norm", "update_ratio", "weight_norm")}
    plain = table_of(note(1, names=NAMES), note(2, names=["layer.1", "head"], **later)).to_plain()
    assert plain["names"] == ["layer.1", "head", "words", "layer.0"]
    assert plain["grad_norm"] == [[1, None, 0.1, 0.2], [0.5, 0.7, None, None]]


def test_values_that_are_not_finite_are_counted_though_their_column_is_thinned_out():
    events = [note(step) for step in range(2, 1000)]
    events[499]["grad_norm"][1] = "NaN"
    events[499]["update_ratio"][0] = "Infinity"
    table = table_of(note(1, names=NAMES), *events)
    plain = table.to_plain()
    assert plain["num_not_finite"] == 2
    assert plain["not_finite"] == [[501, "layer.0", "grad_norm"], [501, "words", "update_ratio"]]
    table.cut(ResumePoint(400))
    assert table.to_plain()["num_not_finite"] == 0
    for step in range(401, 500):
        table.add(note(step, weight_norm=["NaN"] * 3))
    assert len(table.to_plain()["not_finite"]) == MAX_NAMED
    assert table.to_plain()["num_not_finite"] == 3 * 99
    table.cut(ResumePoint(450))
    assert table.to_plain()["num_not_finite"] == 3 * 50


def test_a_resume_drops_what_is_made_again(written):
    written.begin()
    for step in range(2, 12, 2):
        written.write(**note(step, names=NAMES if step == 2 else None))
    written.begin(first_step=5)
    written.write(**note(6, names=NAMES, weight_norm=[9.0] * 3))
    source = RunSource(written.folder)
    source.update()
    (run,) = describe_runs([source.data])["runs"]
    plain = run["notes"]["modules"]
    assert plain["steps"] == [2, 4, 6]
    assert plain["weight_norm"][-1] == [9.0] * 3


def test_another_run_in_the_folder_begins_anew():
    run = RunData("somewhere")
    for number, first in enumerate(("a", "b")):
        run.add({"kind": "begin", "run_id": first, "step": 0, "max_steps": 10, "first_step": 0})
        run.add(note(2 + number, names=[first, *NAMES[1:]]))
    assert run.to_plain(100)["notes"]["modules"]["steps"] == [3]
    assert run.to_plain(100)["notes"]["modules"]["names"][0] == "b"


def test_a_step_that_comes_again_replaces_the_first():
    plain = table_of(note(1, names=NAMES), note(3), note(5), note(3, weight_norm=[2.0] * 3)).to_plain()
    assert plain["steps"] == [1, 3]
    assert plain["weight_norm"][1] == [2.0] * 3


WRONG = {
    "no step": {"step": None},
    "a step that is true": {"step": True},
    "a step before the first": {"step": -1},
    "a step without end": {"step": 10**400},
    "no values": {"grad_norm": None},
    "text for values": {"weight_norm": "abc"},
    "too few values": {"update_ratio": [1.0]},
    "an object": {"update_ratio": {"0": 1.0}},
    "names that are a word": {"names": "abc"},
    "names that are numbers": {"names": [1, 2, 3]},
    "names that are equal": {"names": ["a", "a", "b"]},
    "too many names": {"names": [str(number) for number in range(MAX_ROWS + 1)]},
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_measurement_is_left_out(what):
    table = table_of(note(1, names=NAMES), {**note(2), **WRONG[what]})
    assert table.to_plain()["steps"] == [1]


def test_single_values_that_are_none_leave_empty_places():
    odd = [[], {}, "<script>", True, -1.0, None, math.nan, 10**400, "NaN"]
    names = [f"m{number}" for number in range(len(odd))]
    event = {"kind": "modules", "step": 1, "names": names, **dict.fromkeys(("grad_norm", "weight_norm"), odd)}
    plain = table_of({**event, "update_ratio": [1.0] * len(odd)}).to_plain()
    assert plain["grad_norm"] == [[None] * (len(odd) - 1) + ["NaN"]]
    json.loads(to_script_json(plain), parse_constant=lambda name: pytest.fail(name))


def test_long_names_keep_their_ends():
    names = ["x" * 10_000 + end for end in NAMES]
    found = table_of(note(1, names=names)).to_plain()["names"]
    assert [len(name) for name in found] == [200] * 3
    assert all(name.endswith(end) for name, end in zip(found, NAMES, strict=True))


def test_everything_that_was_measured_is_read_back(written):
    written.begin()
    for step in range(1, 501):
        written.write(**note(step, names=NAMES if step == 1 else None, weight_norm=[1.0, "Infinity", None]))
    written.begin(first_step=400)
    written.write(**note(401, names=NAMES))
    found = read_modules(written.folder)
    assert found["names"] == NAMES
    assert found["steps"] == [*range(1, 402)]
    assert found["weight_norm"][0] == [1.0, math.inf, None]
    assert found["grad_norm"][399] == [0.1, 0.2, 400]


def test_reading_back_what_was_not_measured_names_the_setting(finished):
    with pytest.raises(ValueError, match="module_stats_steps=50"):
        read_modules(finished.folder)


def test_a_list_of_runs_does_not_read_the_modules(written):
    written.begin()
    written.train(1, 20)
    written.write(**note(20, names=NAMES))
    glance = Glance(written.folder, num_points=100)
    glance.update()
    assert glance.num_damaged == 0
    assert glance.data.step == 20
    assert glance.data.to_plain(100)["notes"]["modules"] is None
