"""The page of a search as a file: complete, safe, small, and in its place whole or not at all."""

from __future__ import annotations

import json
import math
import os
import re
import resource
import signal
import time
from pathlib import Path

import pytest

from footplate.search.outcomes import Outcome
from footplate.search.page import MAX_TRIALS, describe_search, save_search_page
from footplate.search.record import TrialRecord
from footplate.search.summary import SearchSummary

HOSTILE = "</script><script>document.title = 'pwned'</script><img src=x onerror=\"document.title = 'pwned'\">"


def make_search(folder, outcomes, directions=("minimize",), objective="eval_loss", **about):
    """A search whose trials are on disk, with a page for each that has a folder."""
    record = TrialRecord(
        str(folder), {"backend": "random", "directions": list(directions), "objective": objective, **about}
    )
    for outcome in outcomes:
        record.add(outcome)
        if outcome.folder:
            os.makedirs(folder / outcome.folder, exist_ok=True)
            (folder / outcome.folder / "report.html").write_text("a page")
    return SearchSummary(str(folder), objective, list(directions), list(outcomes))


def data_in(path):
    text = path.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, flags=re.DOTALL)
    return json.loads(found.group(1))


def save_and_read(summary, num_trials=None, is_over=True):
    save_search_page(summary, num_trials, is_over)
    return data_in(Path(summary.output_dir, "report.html"))["search"]


def trial(number, *values, state="complete", **fields):
    fields = {"params": {"learning_rate": 10.0 ** -(number % 5 + 1)}, "step": 10, "seconds": 1.5, **fields}
    return Outcome(number, state, values=list(values) or None, folder=f"run-{number}", **fields)


def test_it_says_what_the_search_is_and_how_far_it_is(tmp_path):
    outcomes = [
        trial(0, 0.5, checkpoint="checkpoint-10"),
        trial(1, 0.25, checkpoint="checkpoint-20"),
        trial(2, 0.75, state="pruned"),
        trial(3, state="failed", error="Traceback of some lines\nRuntimeError: out of memory"),
    ]
    space = {"learning_rate": {"low": 1e-5, "high": 1e-1, "log": True}, "seed": [1, 2]}
    search = save_and_read(make_search(tmp_path, outcomes, space=space), 20, is_over=False)
    assert (search["objective"], search["directions"], search["backend"]) == (
        "eval_loss",
        ["minimize"],
        "random",
    )
    assert (search["num_trials"], search["is_over"], search["seconds"]) == (20, False, 6.0)
    assert search["counts"] == {"complete": 2, "pruned": 1, "failed": 1}
    assert search["kinds"] == {"learning_rate": "log", "seed": "list"}
    assert search["best"] == [1]
    assert search["trials"][1]["checkpoint"] == str(tmp_path / "run-1" / "checkpoint-20")
    assert search["trials"][1]["params"] == {"learning_rate": 0.01}
    assert search["trials"][1]["link"] == "./run-1/report.html"
    assert search["trials"][3]["error"] == "RuntimeError: out of memory"
    assert search["trials"][3]["values"] is None


@pytest.mark.parametrize("directions", [["minimize", "maximize"], ["minimize", "maximize", "minimize"]])
def test_with_several_objectives_all_that_no_other_surpasses_are_best(tmp_path, directions):
    third = [3.0] * (len(directions) - 2)
    outcomes = [trial(0, 1.0, 5.0, *third), trial(1, 2.0, 6.0, *third), trial(2, 2.5, 4.0, *third)]
    search = save_and_read(make_search(tmp_path, outcomes, directions))
    assert search["best"] == [0, 1]


@pytest.mark.parametrize("outcomes", [[], [trial(n, state="failed", error="no") for n in range(3)]])
def test_without_a_best_trial_there_is_a_page_too(tmp_path, outcomes):
    search = save_and_read(make_search(tmp_path, outcomes), 3, is_over=False)
    assert search["best"] == []
    assert len(search["trials"]) == len(outcomes)


def test_numbers_that_are_not_finite_are_words(tmp_path):
    params = {"a": math.nan, "b": -math.inf, "c": 2**60, "d": 10**400}
    search = save_and_read(make_search(tmp_path, [trial(0, math.inf, params=params), trial(1, 3.0)]))
    assert search["trials"][0]["values"] == ["inf"]
    assert search["trials"][0]["params"] == {
        "a": "nan",
        "b": "-inf",
        "c": str(2**60),
        "d": "1" + "0" * 78 + "…",
    }
    assert search["best"] == [1]


def test_names_that_only_some_trials_have_and_kinds_that_are_mixed_stay_as_they_are(tmp_path):
    kinds = [1, 1.5, "1", True, None, [1, 2], {"x": math.nan}]
    outcomes = [trial(n, 1.0, params={"mixed": kind}) for n, kind in enumerate(kinds)]
    outcomes.append(trial(7, 1.0, params={"other": "here alone"}))
    search = save_and_read(make_search(tmp_path, outcomes))
    assert search["names"] == ["mixed", "other"]
    shown = [one["params"].get("mixed", "missing") for one in search["trials"]]
    assert shown == [1, 1.5, "1", True, None, "[1, 2]", "{'x': 'nan'}", "missing"]


def test_text_of_trials_can_neither_end_a_tag_nor_become_an_address(tmp_path):
    outcome = trial(0, 1.0, params={HOSTILE: HOSTILE}, error=HOSTILE, checkpoint=HOSTILE)
    summary = make_search(tmp_path, [outcome], objective=HOSTILE)
    save_search_page(summary, None, True)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert text.count("<script") == text.count("</script>") == 2
    assert "<img" not in text
    assert "default-src 'none'" in text
    assert not re.findall(r"""(?:src|href)\s*=\s*["']?https?:""", text)


@pytest.mark.parametrize(
    ("folder", "link"),
    [
        ("javascript:alert(1)", "./javascript%3Aalert%281%29/report.html"),
        ('a "b" <c>', "./a%20%22b%22%20%3Cc%3E/report.html"),
        ("..", None),
        ("../elsewhere", None),
        ("a/b", None),
        ("", None),
    ],
)
def test_a_link_leads_to_a_folder_beside_the_page_or_nowhere(tmp_path, folder, link):
    home = tmp_path / "home"
    for place in (home, home / folder):
        place.mkdir(parents=True, exist_ok=True)
        (place / "report.html").write_text("a page")
    (tmp_path / "report.html").write_text("a page")
    outcome = trial(0, 1.0).replace(folder=folder)
    described = describe_search(SearchSummary(str(home), "x", ["minimize"], [outcome]), 1, True)
    assert described["search"]["trials"][0]["link"] == link


def test_a_trial_without_a_page_has_no_link_and_a_page_elsewhere_finds_the_others(tmp_path):
    summary = make_search(tmp_path / "out", [trial(0, 1.0), trial(1, 2.0)])
    (tmp_path / "out" / "run-0" / "report.html").unlink()
    described = describe_search(summary, 2, True, page_folder=tmp_path / "pages")
    links = [one["link"] for one in described["search"]["trials"]]
    assert links == [None, "./../out/run-1/report.html"]


@pytest.mark.parametrize(
    "fields",
    [
        {"values": "abc"},
        {"values": [1.0, 2.0]},
        {"values": [None]},
        {"values": [10**400]},
        {"params": [1]},
        {"seconds": "long"},
        {"state": 5},
        {"error": 7},
        {"folder": 3},
        {"step": "x"},
        {"checkpoint": ["a"]},
    ],
)
def test_a_line_of_a_trial_that_is_not_what_it_should_be_breaks_no_page(tmp_path, fields):
    outcomes = [trial(0, 1.0).replace(**fields), trial(1, 2.0)]
    search = save_and_read(SearchSummary(str(tmp_path), "x", ["minimize"], outcomes))
    assert [one["number"] for one in search["trials"]] == [0, 1]


def many(number, num_objectives=1):
    for n in range(number):
        params = {f"a_name_of_usual_length_{k}": (n * 37 + k) % 101 / 7 for k in range(10)}
        state = ("complete", "complete", "pruned", "failed")[n % 4]
        values = [math.sin(n) + 2, math.cos(n) + 2][:num_objectives]  # on a circle: many surpass each other
        yield trial(n, *values, state=state, params=params, error="E" * 2000 if state == "failed" else None)


@pytest.mark.parametrize("num_objectives", [1, 2])
def test_a_thousand_trials_make_a_small_page_quickly(tmp_path, num_objectives):
    summary = SearchSummary(
        str(tmp_path), "x", ["minimize"] * num_objectives, list(many(1000, num_objectives))
    )
    start = time.process_time()
    save_search_page(summary, 1000, True)
    assert time.process_time() - start < 1.5
    assert (tmp_path / "report.html").stat().st_size < 2_000_000


def test_of_very_many_trials_the_best_and_the_latest_are_shown_and_all_are_counted(tmp_path):
    outcomes = [trial(0, -5.0), *(trial(n, 1.0) for n in range(1, MAX_TRIALS + 11))]
    described = describe_search(SearchSummary(str(tmp_path), "x", ["minimize"], outcomes), None, True)
    search = described["search"]
    assert [one["number"] for one in search["trials"]] == [0, *range(11, MAX_TRIALS + 11)]
    assert search["counts"] == {"complete": MAX_TRIALS + 11}


def test_a_full_disk_leaves_the_old_page_and_no_draft(tmp_path):
    summary = make_search(tmp_path, [trial(0, 1.0)])
    save_search_page(summary, 1, True)
    old = (tmp_path / "report.html").read_bytes()
    names = sorted(entry.name for entry in tmp_path.iterdir())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that a write fails as on a full disk
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
        with pytest.raises(OSError):
            save_search_page(summary, 2, False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert (tmp_path / "report.html").read_bytes() == old
    assert sorted(entry.name for entry in tmp_path.iterdir()) == names
