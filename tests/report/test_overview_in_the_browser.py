"""The page of all runs in a real Chromium: sorted, chosen, compared, safe, by night, small and live."""

from __future__ import annotations

import threading

import pytest
from selenium.webdriver.support.ui import WebDriverWait

from footplate.report.files import save_text
from footplate.report.overview import RunList
from footplate.report.overview_page import NUM_POINTS, OverviewServer, build_overview, describe_overview

HOSTILE = "</script><script>document.title = 'pwned'</script>"
PHONE = 390


@pytest.fixture
def runs(tmp_path, write_run):
    """Ten runs of several statuses; the best is number 9."""
    for number in range(10):
        run = write_run(tmp_path / "all" / f"group{number % 2}" / f"run-{number}")
        run.time += 1000 * number
        run.begin(settings={"learning_rate": 0.1 / (number + 1)}, name=f"run {number} {HOSTILE}")
        run.train(last=40 + number)
        if number % 3:
            run.end(100 if number % 2 else 40 + number)
    return RunList(tmp_path / "all", lambda folder: None, NUM_POINTS)


@pytest.fixture
def page(runs, tmp_path):
    """Their page, as an address."""
    runs.update()
    path = tmp_path / "all.html"
    save_text(build_overview(describe_overview(runs, "age", page_folder=tmp_path)), path)
    return path.as_uri()


def texts(chromium, selector):
    return chromium.run(
        "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText.trim())", selector
    )


def names(chromium):
    return [name.split("-")[1].split("\n")[0] for name in texts(chromium, ".overview td:nth-child(2)")]


def chosen(chromium):
    script = "return [...document.querySelectorAll('.pick input:checked')].map((e) => e.dataset.focus)"
    return sorted(name[-1] for name in chromium.run(script))


def click(chromium, label):
    script = "document.querySelector(`[data-focus='${arguments[0]}']`).click()"
    chromium.run(script, label)


def test_the_newest_runs_are_compared_and_all_are_listed(chromium, page):
    chromium.show(page)
    assert names(chromium) == list("9876543210")
    assert chosen(chromium) == list("23456789")
    assert "10 runs" in chromium.find("h1").text
    assert chromium.run("return charts.length") >= 2
    lines = chromium.run("return charts[0].series.length - 1")
    assert lines % 8 == 0
    order = chromium.run(
        "return [...document.querySelectorAll('.part')].map((p) => p.className.split('part-')[1])"
    )
    assert order.index("overview") < order.index("settings") < order.index("curves")
    assert chromium.errors() == []
    assert chromium.requests() == [page]


def test_a_head_sorts_and_sorts_back(chromium, page):
    chromium.show(page)
    click(chromium, "sort name")
    assert names(chromium) == list("0246813579")  # by the path
    click(chromium, "sort name")
    assert names(chromium) == list("9753186420")
    click(chromium, "sort best")
    assert chromium.find("th[aria-sort]").get_attribute("aria-sort") == "ascending"
    assert chromium.errors() == []


def test_a_mark_takes_a_run_into_the_charts_and_out(chromium, page):
    chromium.show(page)
    before = chromium.run("return charts[0].series.length")
    assert not chromium.find("[data-focus='run group0/run-0']").is_enabled()  # eight are the most
    click(chromium, "run group1/run-9")
    assert chosen(chromium) == list("2345678")
    assert chromium.run("return charts[0].series.length") < before
    click(chromium, "run group0/run-0")
    assert chosen(chromium) == list("02345678")
    for number in "2345678":
        click(chromium, f"run group{int(number) % 2}/run-{number}")
    assert chosen(chromium) == ["0"]
    assert not chromium.find("[data-focus='run group0/run-0']").is_enabled()  # one stays
    assert chromium.errors() == []


def test_names_stay_text(chromium, page):
    chromium.show(page)
    assert chromium.driver.title == "all · footplate"
    assert "pwned" in chromium.find("#report").text


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, PHONE])
def test_nothing_is_wider_than_the_window(chromium, page, width, scheme):
    chromium.show(page, width=width, scheme=scheme)
    assert chromium.run("return document.documentElement.scrollWidth") == width
    table = chromium.run(
        "const s = document.querySelector('#runs .scroll'); return s.scrollWidth - s.clientWidth"
    )
    assert table <= 0
    assert chromium.errors() == []


def test_no_run_yet_is_said(chromium, tmp_path):
    runs = RunList(tmp_path, lambda folder: None, NUM_POINTS)
    runs.update()
    path = tmp_path / "all.html"
    save_text(build_overview(describe_overview(runs, "age", page_folder=tmp_path)), path)
    chromium.show(path.as_uri())
    assert "no run below this folder yet" in chromium.find("#report").text
    assert chromium.errors() == []


def test_a_served_page_follows_and_links_to_each_run(chromium, runs, tmp_path, write_run):
    with OverviewServer(runs, "age", 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            chromium.show(server.url)
            click(chromium, "run group1/run-9")
            new = write_run(tmp_path / "all" / "new")
            new.time += 100_000
            new.begin()
            new.log(1, loss=1.0)
            wait = WebDriverWait(chromium.driver, 20)
            wait.until(lambda _: "11 runs" in chromium.find("h1").text)
            assert chosen(chromium) == list("2345678")  # as it was marked
            new.log(7, loss=0.5)
            wait.until(lambda _: "7 of 100" in chromium.find("#report").text)
            chromium.run("document.querySelector('.overview a[href*=\"run-9\"]').click()")
            wait.until(lambda _: "run 9" in chromium.find("h1").text)
        finally:
            server.shutdown()
            thread.join()


def test_fifty_runs_are_drawn_at_once(chromium, tmp_path, write_run):
    for number in range(50):
        run = write_run(tmp_path / "all" / f"run-{number}")
        run.begin()
        run.train(last=200)
    runs = RunList(tmp_path / "all", lambda folder: None, NUM_POINTS)
    runs.update()
    path = tmp_path / "all.html"
    save_text(build_overview(describe_overview(runs, "age", page_folder=tmp_path)), path)
    chromium.show(path.as_uri())
    assert len(names(chromium)) == 50
    assert chromium.run("return performance.getEntriesByName('drawn')[0].startTime") < 5000
