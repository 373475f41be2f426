"""Classes and answers by length in a real Chromium: the right numbers, choices, small screens, safe names."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from selenium.webdriver.support.ui import Select

from footplate.evaluation.classes import summarize_classes
from footplate.report.files import save_text
from footplate.report.page import build_page, describe_runs
from footplate.report.source import RunSource

HOSTILE = "<img src=x onerror='document.title=1'>"
NAMES = ["cat", HOSTILE, "a name that is much longer than its cell"]
LABELS = np.repeat([0, 1, 2], [50, 30, 20])


def write_page(*runs):
    """The page of some runs, as an address."""
    sources = [RunSource(run.folder) for run in runs]
    for source in sources:
        source.update()
    path = runs[0].folder / "report.html"
    save_text(build_page(describe_runs([source.data for source in sources])), path)
    return path.as_uri()


def choose(num_wrong):
    """So many wrong choices of the first class, and four of the last, beside what is right."""
    chosen = LABELS.copy()
    chosen[:num_wrong] = 1
    chosen[-4:] = 0
    return chosen, LABELS


def make_event(num_wrong, names=NAMES, scored=True):
    chosen, _ = choose(num_wrong)
    return summarize_classes(np.eye(3)[chosen] * 3 if scored else chosen, LABELS, names).to_event()


@pytest.fixture
def sorted_run(written):
    """Three evaluations of one set, the second of which is the best, and one prediction."""
    written.begin()
    for step, num_wrong in ((10, 20), (20, 5), (30, 10)):
        written.log(step, loss=1 / step, eval_loss=1 / step)
        written.write("classes", step=step, set="eval", is_best=step == 20, **make_event(num_wrong))
    written.write("classes", step=30, set="test", is_best=False, **make_event(0, scored=False))
    return written


def read_matrix(chromium):
    cells = "[...row.cells].slice(1).map((cell) => cell.textContent)"
    return chromium.run(f"return [...document.querySelectorAll('#matrix tbody tr')].map((row) => {cells})")


def read_column(chromium, number=0):
    rows = "[...document.querySelectorAll('.of-classes tbody tr')]"
    return chromium.run(f"return {rows}.map((row) => row.cells[arguments[0]].textContent)", number)


def click(chromium, selector, text):
    fits = "(button) => button.textContent.startsWith(arguments[1])"
    found = f"[...document.querySelectorAll(arguments[0])].find({fits})"
    chromium.run(f"const button = {found}; button.focus(); button.click()", selector, text)


def test_the_matrix_shows_counts_and_shares_of_the_latest_and_the_best(chromium, sorted_run):
    chromium.show(write_page(sorted_run))
    assert read_matrix(chromium) == [["40", "10", ""], ["", "30", ""], ["4", "", "16"]]
    click(chromium, "#matrix button", "% of")
    assert read_matrix(chromium) == [["80", "20", ""], ["", "100", ""], ["20", "", "80"]]
    click(chromium, "#classes .controls button", "best, step 20")
    assert read_matrix(chromium)[0] == ["90", "10", ""]
    assert chromium.run("return document.activeElement.textContent") == "best, step 20"
    assert chromium.errors() == []


def test_the_prediction_is_a_set_of_its_own_without_calibration(chromium, sorted_run):
    chromium.show(write_page(sorted_run))
    assert chromium.run("return document.querySelectorAll('#calibration').length") == 1
    Select(chromium.find("#classes select")).select_by_value("test")
    assert read_matrix(chromium)[0] == ["50", "", ""]
    assert chromium.run("return document.querySelectorAll('#calibration').length") == 0


def test_bars_are_as_high_as_the_share_that_was_right(chromium, sorted_run):
    chromium.show(write_page(sorted_run))
    bars = "[...document.querySelectorAll('#calibration rect.accuracy')]"
    bars = chromium.run(f"return {bars}.map((bar) => bar.height.baseVal.value)")
    (bar,) = bars  # every confidence is the same: e^3 / (e^3 + 2)
    assert bar == pytest.approx(0.86 * 196, rel=1e-6)
    told = chromium.find("#calibration").text
    assert "Calibration error (ECE) 0.0494" in told
    assert "it is surer than it should be" in told


def test_the_table_begins_with_the_worst_class_and_sorts_by_any_column(chromium, sorted_run):
    chromium.show(write_page(sorted_run))
    assert [name[:3] for name in read_column(chromium)] == ["cat", "<im", "a n"]
    scores = [float(text) for text in read_column(chromium, 1)]
    assert scores == sorted(scores)
    click(chromium, ".of-classes .sort", "Support")
    assert read_column(chromium, 4) == ["50", "30", "20"]
    click(chromium, ".of-classes .sort", "Support")
    assert read_column(chromium, 4) == ["20", "30", "50"]
    assert chromium.run("return document.activeElement.textContent") == "Support"
    assert chromium.run("return document.querySelectorAll('.spark').length") == 3


def test_names_stay_text(chromium, sorted_run):
    chromium.show(write_page(sorted_run))
    assert HOSTILE in read_column(chromium)
    assert chromium.run("return document.querySelectorAll('#classes img').length") == 0
    assert chromium.run("return document.title") != "1"


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fifty_classes_scroll_inside_the_page_and_can_be_read(chromium, written, width, scheme):
    labels = np.arange(5000) % 50
    names = [f"a class with the number {n}" for n in range(50)]
    rng = np.random.default_rng(0)
    chosen = np.where(rng.random(5000) < 0.6, labels, rng.integers(0, 50, 5000))
    written.begin()
    written.log(1, loss=1.0)
    written.write(
        "classes", step=1, set="eval", is_best=True, **summarize_classes(chosen, labels, names).to_event()
    )
    chromium.show(write_page(written), width=width, scheme=scheme)
    assert chromium.run("return document.documentElement.scrollWidth") <= width
    assert chromium.run("return document.querySelectorAll('#matrix tbody td').length") == 2500
    check_contrast(chromium)
    assert chromium.errors() == []


def test_every_shade_of_a_cell_leaves_its_number_readable(chromium, written):
    """From a hundredth of the row to the whole of it, right and wrong, by day and by night."""
    labels = np.repeat(np.arange(50), 100)
    chosen = np.where(np.arange(5000) % 100 < labels * 2, labels, (labels + 1) % 50)
    written.begin()
    written.log(1, loss=1.0)
    written.write("classes", step=1, set="eval", is_best=True, **summarize_classes(chosen, labels).to_event())
    for scheme in ("light", "dark"):
        chromium.show(write_page(written), scheme=scheme)
        check_contrast(chromium)


def check_contrast(chromium):
    """The number in every cell must stand out from its colour."""
    found = chromium.run(
        "return [...document.querySelectorAll('#matrix tbody td')].filter((td) => td.textContent)"
        ".map((td) => { const s = getComputedStyle(td); return [s.color, s.backgroundColor, td.title]; })"
    )
    for color, background, title in found:
        assert contrast(color, background) > 4.5, (title, color, background)


def contrast(*colors):
    """How much lighter one colour is than the other, as guidelines for the web count it."""

    def luminance(text):
        parts = [float(part) for part in re.findall(r"[\d.]+", text)][:3]
        shares = parts if text.startswith("color(") else [part / 255 for part in parts]
        linear = [share / 12.92 if share <= 0.03928 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
        return sum(share * weight for share, weight in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))

    low, high = sorted(map(luminance, colors))
    return (high + 0.05) / (low + 0.05)


def test_of_many_classes_the_confusions_are_a_table(chromium, written):
    labels = np.repeat(np.arange(200), 10)
    chosen = labels.copy()
    chosen[:7] = 5
    written.begin()
    written.log(1, loss=1.0)
    written.write("classes", step=1, set="eval", is_best=True, **summarize_classes(chosen, labels).to_event())
    chromium.show(write_page(written))
    assert chromium.run("return document.querySelectorAll('#matrix').length") == 0
    assert chromium.find(".confusions tbody").text.split() == ["0", "5", "7"]


def test_runs_that_share_no_class_are_not_compared(chromium, sorted_run, write_run, tmp_path):
    other = write_run(tmp_path / "other")
    other.begin(run_id="other")
    other.log(10, loss=1.0)
    other.write("classes", step=10, set="eval", is_best=True, **make_event(9, names=["elk", "dog", "owl"]))
    chromium.show(write_page(sorted_run, other))
    assert chromium.run("return document.querySelectorAll('#classes').length") == 0
    assert chromium.errors() == []


def test_compared_runs_show_the_f1_of_each_class_side_by_side(chromium, sorted_run, write_run, tmp_path):
    other = write_run(tmp_path / "other")
    other.begin(run_id="other")
    other.log(10, loss=1.0)
    other.write("classes", step=10, set="eval", is_best=True, **make_event(50, names=["cat", "dog", "owl"]))
    chromium.show(write_page(sorted_run, other))
    heads = chromium.run(
        "return [...document.querySelectorAll('.of-classes th')].map((th) => th.textContent)"
    )
    assert heads == ["Class", "run", "other"]
    rows = dict(zip(read_column(chromium), read_column(chromium, 2), strict=True))
    assert (rows["cat"], rows[HOSTILE]) == ("0.000", "\u2013")
    assert set(rows) == {*NAMES, "dog", "owl"}


def test_runs_are_compared_on_a_set_that_they_share(chromium, written, write_run, tmp_path):
    other = write_run(tmp_path / "other")
    for run, sets in ((written, {"test": 30, "new": 20, "known": 0}), (other, {"known": 0, "new": 10})):
        run.begin(run_id=run.folder.name)
        run.log(10, loss=1.0)
        for name, num_wrong in sets.items():
            run.write("classes", step=10, set=name, is_best=False, **make_event(num_wrong, scored=False))
    chromium.show(write_page(written, other))
    assert "in the best evaluation of new of each run" in chromium.find("#classes").text
    rows = dict(
        zip(
            read_column(chromium),
            zip(read_column(chromium, 1), read_column(chromium, 2), strict=True),
            strict=True,
        )
    )
    expected = [summarize_classes(*answers).f1[0] for answers in (choose(20), choose(10))]
    assert rows["cat"] == tuple(f"{f1:.3f}" for f1 in expected)
    assert chromium.errors() == []


def test_answers_by_length_are_bars(chromium, written):
    written.begin()
    written.log(1, loss=1.0)
    tables = {
        "answer": [["1", 40, 25.0, 75.0], ["no answer", 1, 100.0, 100.0]],
        "question": [["1 to 5", 41, 30, 80.0]],
    }
    scores = {"num_items": 41, "exact_match": 26.8, "f1": 75.6}
    written.write("answers", step=1, set="eval", is_best=True, tables=tables, **scores)
    for width in (390, 1280):
        chromium.show(write_page(written), width=width)
        assert chromium.run("return document.documentElement.scrollWidth") <= width
    shares = chromium.run(
        "return [...document.querySelectorAll('[data-lengths=answer] .track')].map((t) =>"
        " t.firstChild.getBoundingClientRect().width / t.getBoundingClientRect().width)"
    )
    assert shares == pytest.approx([0.25, 0.75, 1.0, 1.0], abs=0.01)
    assert "1 question" in chromium.find("[data-lengths=answer]").text
    assert chromium.errors() == []


def test_a_run_without_such_evaluations_has_neither_section(chromium, finished):
    chromium.show(write_page(finished))
    assert chromium.run("return document.querySelectorAll('#classes, #answers').length") == 0
    assert json.loads(chromium.run("return JSON.stringify(data.runs[0].notes)"))["classes"] is None
