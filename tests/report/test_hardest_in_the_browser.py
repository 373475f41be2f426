"""The hardest rows in a real Chromium."""

from __future__ import annotations

import time

import pytest

from footplate.report.files import save_text
from footplate.report.page import build_page, describe_runs
from footplate.report.source import RunSource

HOSTILE = "<script>document.title = 'pwned'</script><img src=x onerror=\"document.title = 'pwned'\">"


def note(written, num_rows=3, **changed):
    """A note as a run writes it, of rows with falling losses."""
    rows = [
        {
            "row": i,
            "loss": 5.0 / (i + 1) if i else "nan",
            "outlier": i < 2,
            "input": HOSTILE if i == 1 else f"input {i}",
            "target": "a",
            "prediction": "b" if i < 2 else "a",
            "correct": i >= 2,
        }
        for i in range(num_rows)
    ]
    values = {"rows": rows, "num_rows": 1000, "num_outliers": 2, "num_nonfinite": 1, "total": 2000}
    values |= {"mean": 0.2, "limit": 1.0, "quantiles": {"median": 0.1}, "bins": [990, 4, 0, 1]}
    written.write("hardest", 1.0, step=100, **{**values, "edges": [0.0, 2.5], "seconds": 0.5, **changed})


def page_of(*runs):
    sources = [RunSource(run.folder) for run in runs]
    for source in sources:
        source.update()
    path = runs[0].folder / "report.html"
    save_text(build_page(describe_runs([source.data for source in sources])), path)
    return path.as_uri()


@pytest.fixture
def noted(finished):
    note(finished)
    return finished


@pytest.mark.parametrize("width", [1180, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_rows_and_all_losses_are_shown(chromium, noted, width, scheme):
    chromium.show(page_of(noted), width, scheme=scheme)
    words = chromium.find("#hardest .hardest-words").text
    assert "1,000 rows of 2,000 went through the model" in words
    assert "2 rows with a loss above 1 are outliers" in words
    assert "1 row has no finite loss" in words
    texts = chromium.run(
        "return [...document.querySelectorAll('#hardest tbody tr')].map((r) => r.dataset ? "
        "[r.className, r.querySelector('td[data-head=Row]').innerText.trim()] : null)"
    )
    assert texts == [["wrong", "0"], ["wrong", "1"], ["right", "2"]]
    heads = chromium.run("return [...document.querySelectorAll('#hardest th')].map((h) => h.textContent)")
    assert heads == ["", "Loss", "Row", "Input", "Target", "Prediction"]
    assert chromium.run("return document.documentElement.scrollWidth") == width
    assert chromium.errors() == []


def test_columns_are_as_high_as_they_have_rows_and_outliers_have_another_colour(chromium, noted):
    chromium.show(page_of(noted))
    found = chromium.run(
        "return [...document.querySelectorAll('#hardest .column')].map((c) => "
        "[c.firstChild.getBoundingClientRect().height, c.classList.contains('beyond'), c.title])"
    )
    heights = [height for height, _, _ in found]
    assert heights[0] > heights[1] > heights[3] > 5
    assert heights[2] == 0
    assert [beyond for _, beyond, _ in found] == [False, False, True, True]
    assert found[1][2] == "4 rows with a loss from 0.625 to 1.25"
    images = chromium.run(
        "return [...document.querySelectorAll('#hardest .column > div')].map((c) => "
        "getComputedStyle(c).backgroundImage.split('(')[0])"
    )
    assert images == ["none", "linear-gradient", "none", "none"]  # outliers begin inside of the second one
    bars = chromium.run(
        "return [...document.querySelectorAll('#hardest .loss-bar')].map((b) => "
        "[b.firstChild.getBoundingClientRect().width / b.getBoundingClientRect().width, "
        "b.classList.contains('beyond')])"
    )
    assert [round(share, 2) for share, _ in bars] == [1.0, 1.0, 0.67]
    assert [beyond for _, beyond in bars] == [True, True, False]


def test_rows_that_are_no_outliers_do_not_look_like_some(chromium, finished):
    """Of a trained model nearly all losses are in the first column, and outliers begin in it."""
    note(finished, limit=0.05, num_unlabelled=1, num_nonfinite=0)
    chromium.show(page_of(finished))
    assert "1,001 rows of 2,000" in chromium.find("#hardest .hardest-words").text
    assert (
        "1 of them has no label that counts, and so no loss. Half of the others"
        in chromium.find("#hardest .hardest-words").text
    )
    first, words = chromium.run(
        "const first = document.querySelector('#hardest .column');"
        "return [first.classList.contains('beyond'), document.querySelector('#hardest .limit span')"
        ".getBoundingClientRect().bottom <= first.firstChild.getBoundingClientRect().top]"
    )
    assert not first
    assert words  # above the columns, where they can be read


def test_text_from_right_to_left_is_in_its_order(chromium, finished):
    note(finished, rows=[{"row": 0, "loss": 1.0, "outlier": False, "input": "\u05e9\u05dc\u05d5\u05dd!"}])
    chromium.show(page_of(finished))
    left, right = chromium.run(
        "const text = document.querySelector('#hardest td[data-head=Input] .text').firstChild;"
        "const place = (i) => { const range = document.createRange(); range.setStart(text, i);"
        "range.setEnd(text, i + 1); return range.getBoundingClientRect().left; };"
        "return [place(4), place(0)]"
    )
    assert left < right  # the exclamation mark ends the text


def test_text_of_a_row_stays_text(chromium, noted):
    chromium.show(page_of(noted))
    assert "pwned" not in chromium.driver.title
    assert HOSTILE in chromium.find("#hardest").text
    assert chromium.run("return document.querySelectorAll('#hardest img, #hardest script').length") == 0
    assert chromium.errors() == []


def test_a_run_without_such_a_pass_has_no_such_section(chromium, finished):
    chromium.show(page_of(finished))
    assert chromium.run("return document.querySelector('#hardest')") is None


def test_a_run_whose_losses_are_all_the_same_or_not_finite_is_shown_without_columns(chromium, finished):
    note(finished, 1, mean=None, limit=None, quantiles={}, bins=[], edges=[0.0, 0.0], num_outliers=0)
    chromium.show(page_of(finished))
    assert chromium.run("return document.querySelectorAll('#hardest .column').length") == 0
    assert "went through the model. 1 row has no finite loss" in chromium.find("#hardest").text
    assert chromium.errors() == []


def test_of_several_runs_one_is_chosen(chromium, write_run, tmp_path):
    runs = []
    for number, name in enumerate(("one", "two")):
        run = write_run(tmp_path / name)
        run.begin(run_id=name)
        run.train()
        note(run, num_rows=3 + number)
        run.end()
        runs.append(run)
    chromium.show(page_of(*runs))
    count = "return document.querySelectorAll('#hardest tbody tr').length"
    assert chromium.run(count) == 3
    chromium.run(
        "const s = document.querySelector('#hardest select'); s.value = 'two';"
        "s.dispatchEvent(new Event('change'))"
    )
    assert chromium.run(count) == 4
    assert chromium.errors() == []


def test_a_hundred_long_rows_are_drawn_at_once(chromium, finished):
    note(finished, 100)
    rows = [{"row": i, "loss": 1.0, "outlier": False, "input": "word " * 200} for i in range(100)]
    note(finished, rows=rows)
    began = time.perf_counter()
    chromium.show(page_of(finished))
    seconds = chromium.run(
        "const began = performance.now(); refresh('hardest'); document.body.offsetHeight;"
        "return (performance.now() - began) / 1000"
    )
    assert seconds < 1.0
    assert time.perf_counter() - began < 20
