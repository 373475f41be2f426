"""The report in a real Chromium: drawn, hovered, zoomed, safe, fast, by day, by night, small and live."""

from __future__ import annotations

import base64
import json
import threading
import time

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.support.ui import WebDriverWait

from footplate.report.files import save_text
from footplate.report.page import Plot, build_page, describe_runs
from footplate.report.serve import ReportServer
from footplate.report.source import RunSource

HOSTILE = "<script>document.title = 'pwned'</script>"
TRAIN, EVAL = (0, 114, 178), (217, 115, 13)  # the colours of a single run by day
TRAIN_BY_NIGHT = (86, 180, 233)


def write_page(*runs, path=None, **options):
    """The page of some runs, as an address."""
    sources = [RunSource(run.folder) for run in runs]
    for source in sources:
        source.update()
    path = path or runs[0].folder / "report.html"
    save_text(build_page(describe_runs([source.data for source in sources], **options)), path)
    return path.as_uri()


def drag(chromium, metric, start, end):
    """Draw with the pressed button from one step to another."""
    chromium.hover(metric, start)
    over = chromium.find(f"figure[data-metric='{metric}'] .u-over")
    pixels = "const c = charts.find((c) => c.over === arguments[0]); return c.valToPos(arguments[1], 'x')"
    distance = chromium.run(pixels, over, end) - chromium.run(pixels, over, start)
    ActionChains(chromium.driver).click_and_hold().move_by_offset(round(distance), 0).release().perform()
    return over


def shown_range(chromium):
    """What the axes of all charts show, which is one stretch."""
    ranges = chromium.run("return charts.map((c) => [c.scales.x.min, c.scales.x.max].join())")
    (only,) = set(ranges)
    return [float(end) for end in only.split(",")]


def test_every_curve_is_drawn(chromium, finished):
    chromium.show(write_page(finished))
    assert chromium.count_pixels("loss", TRAIN) > 300
    assert chromium.count_pixels("loss", EVAL) > 100
    assert chromium.count_pixels("f1", EVAL) > 100
    drawn = chromium.run(
        "return [...document.querySelectorAll('figure[data-metric]')].map((f) => f.dataset.metric)"
    )
    assert drawn == ["loss", "f1", "shares"]
    told = chromium.find("#curves .constants").text  # no chart of what never changes
    assert told == "The same all along: train gradient norm 1.5, train learning rate 0.001."
    assert chromium.errors() == []


def test_charts_have_names_that_people_read(chromium, written):
    written.begin()
    for step in range(1, 9):
        written.log(step, loss=1 / step, learning_rate=1e-3 / step, grad_norm=float(step))
        written.log(step, eval_exact_match=step * 10.0, eval_f1=step * 9.0, eval_runtime=2.0 / step)
    chromium.show(write_page(written))
    titles = chromium.run("return [...document.querySelectorAll('#curves h3')].map((h) => h.textContent)")
    assert titles == ["Loss", "Exact match", "F1", "Learning rate", "Gradient norm"]
    labels = "return [...new Set(charts.map((c) => c.axes[0].label))]"
    assert chromium.run(labels) == ["step (updates)"]
    chromium.run(
        "[...document.querySelectorAll('.toolbar button')].find((b) => b.textContent === 'epoch').click()"
    )
    assert chromium.run(labels) == ["epoch"]


def test_times_and_speeds_are_not_among_the_results(chromium, written):
    written.begin()
    written.log(1, eval_loss=0.5, eval_runtime=1234.5678, eval_samples_per_second=3.25)
    chromium.show(write_page(written))
    assert chromium.find("#results").text.splitlines()[-1] == "eval Loss 0.5 0.5 @ 1 0.5 @ 1"
    assert "1,234.6" in chromium.run("return document.querySelector('#speed').textContent")


def test_errors_and_warnings_stand_at_the_top_in_their_colours(chromium, written):
    written.begin()
    for number in range(4):
        written.write("warning", step=number, level="WARNING", message=f"a warning {number} of {HOSTILE}")
    written.write("warning", step=2, level="ERROR", message="checkpoint-2 could not be written")
    written.train(1, 10)
    chromium.show(write_page(written))
    shown = "return [...document.querySelectorAll('header .alert')].map((a) => [a.className, a.textContent])"
    alerts = chromium.run(shown)
    assert [kind for kind, _ in alerts] == ["alert error", "alert warning", "alert warning"]
    assert "checkpoint-2 could not be written" in alerts[0][1]
    assert "a warning 3" in alerts[1][1]
    assert chromium.find("header .alerts a").text == "and 2 more"
    color = "return getComputedStyle(document.querySelector(arguments[0])).color"
    red, amber = (chromium.run(color, f".alert.{kind}") for kind in ("error", "warning"))
    assert len({red, amber, chromium.run("return getComputedStyle(document.body).color")}) == 3
    assert chromium.run("return document.title") != "pwned"
    kinds = chromium.run(
        "return [...document.querySelectorAll('#warnings tbody tr')].map((r) => r.className)"
    )
    assert kinds == ["warning"] * 4 + ["error"]


def test_a_quiet_run_has_no_alert(chromium, written):
    written.begin()
    written.train(1, 3)
    chromium.show(write_page(written))
    assert (
        chromium.run("return document.querySelectorAll('.alert, .status.error, .status.warning').length") == 0
    )


def test_evaluation_samples_come_first_with_the_answer_marked_in_its_context(chromium, written):
    written.begin()
    context = f"Ada was born in Ulm. {'Nothing else is known. ' * 30} She lives in Bern. {HOSTILE}"
    for step in (1, 2):
        seen = {"row": 7, "input": "Where does she live?", "context": context, "target": "Bern"}
        rows = [
            {**seen, "row": 3, "prediction": "Bern", "correct": True},
            {**seen, "prediction": "Ulm" if step == 1 else "Bern", "correct": step == 2},
        ]
        written.write("samples", step=step, source="train", rows=rows[:1])
        written.write("samples", step=step, source="eval", rows=rows)
        written.log(step, loss=1 / step)
    chromium.show(write_page(written))
    assert chromium.run("return document.querySelector('#samples select').value") == "eval"
    order = "return [...document.querySelectorAll('#samples tbody tr')].map((r) => r.cells[1].textContent)"
    assert chromium.run(order) == ["7", "3"]  # row 7 was wrong once, and stays in view
    chromium.find("#samples button[aria-label=Earlier]").click()
    assert chromium.run(order) == ["7", "3"]
    marks = (
        "return [...document.querySelectorAll('#samples tbody tr:first-child mark')]"
        ".map((m) => [m.className, m.textContent])"
    )
    assert chromium.run(marks) == [["given", "Ulm"], ["answer", "Bern"]]
    assert chromium.run("return document.title") != "pwned"


def test_a_comparison_lists_only_what_differs_between_runs_that_know_it(chromium, written, tmp_path):
    versions = {"torch": "2.6.0", "footplate": "0.1"}
    written.begin(settings={"learning_rate": 0.1, "only_here": 1, "seed": 1}, versions=versions)
    written.train(1, 3)
    other = type(written)(tmp_path / "other")
    other.begin(settings={"learning_rate": 0.2, "seed": 1}, versions={**versions, "torch": "2.7.0"})
    other.train(1, 3)
    chromium.show(write_page(written, other))
    rows = "[...document.querySelectorAll('#arguments > .scroll tbody tr')]"
    listed = f"return {rows}.map((r) => r.cells[0].textContent)"
    assert chromium.run(listed) == ["learning_rate"]
    environment = chromium.find("#environment").text
    assert "2.6.0 · 2.7.0" in " ".join(environment.split())
    assert "footplate" not in environment


def test_hovering_shows_the_values_at_that_step(chromium, finished):
    chromium.show(write_page(finished))
    words = chromium.hover("loss", 60).split()
    assert words == ["step", "60", "train", f"{2 / 60**0.5:.5g}", "eval", f"{2.5 / 60**0.5:.5g}"]
    legend = chromium.find("figure[data-metric='f1'] .legend").text.split()
    assert legend == ["eval", "30"]  # the cursor is in all charts at once


def test_the_network_is_asked_for_nothing(chromium, finished):
    where = write_page(finished)
    chromium.show(where)
    chromium.hover("loss", 50)
    asked = [address for address in chromium.requests() if not address.startswith("data:")]
    assert asked == [where]
    assert chromium.run("return performance.getEntriesByType('resource').length") == 0
    blocked = "return fetch('https://example.com/').then(() => 'sent', (error) => error.name)"
    assert chromium.run(blocked) == "TypeError"
    assert any("Content Security Policy" in message for message in chromium.errors())


def test_a_sample_with_a_script_in_it_shows_as_text(chromium, finished):
    chromium.show(write_page(finished))
    assert "<script>document.title" in chromium.find("#samples").text
    assert "<script>document.title" in chromium.find("#warnings").text
    assert chromium.driver.title == "run · footplate"
    assert chromium.run("return document.querySelectorAll('#report script, #report img').length") == 0
    assert chromium.errors() == []


def test_even_markup_that_got_into_the_page_would_not_run(chromium, finished):
    chromium.show(write_page(finished))
    chromium.run(
        "const s = document.createElement('script'); s.textContent = \"document.title = 'pwned'\";"
        "document.body.append(s);"
        "document.body.insertAdjacentHTML('beforeend', \"<img src=x onerror='document.title=`pwned`'>\")"
    )
    time.sleep(0.2)
    assert chromium.driver.title == "run · footplate"
    assert any("Content Security Policy" in message for message in chromium.errors())


def test_dragging_zooms_all_charts_and_a_double_click_shows_all(chromium, finished):
    chromium.show(write_page(finished))
    over = drag(chromium, "loss", 30, 70)
    assert shown_range(chromium) == pytest.approx([30, 70], abs=1)
    ActionChains(chromium.driver).double_click(over).perform()
    assert chromium.run("return view.zoom") is None
    assert chromium.run("return [charts[0].scales.x.min, charts[0].scales.x.max]") == [1, 100]


def test_smoothing_log_axis_and_another_x_axis_change_the_chart(chromium, finished):
    chromium.show(write_page(finished))
    chromium.run(
        "const s = document.getElementById('smoothing'); s.value = 50; s.dispatchEvent(new Event('input'))"
    )
    assert chromium.run("return view.smoothing") == 0.9
    train, evaluation = chromium.hover("loss", 60).split("eval")
    assert "(" in train  # the smoothed value stands beside the real one
    assert "(" not in evaluation  # which is a mean already
    chromium.find("figure[data-metric='loss'] button.small").click()
    assert chromium.run("return charts[0].scales.y.distr") == 3
    for button in chromium.driver.find_elements("css selector", ".choice button"):
        if button.text == "time":
            button.click()
            break
    start, end = chromium.run("return [charts[0].scales.x.min, charts[0].scales.x.max]")
    assert (start, end) == (1, 104)  # a hundred logs and, before the last, four evaluations, a second each
    assert "into the run" in chromium.hover("loss", 50)
    assert chromium.errors() == []


def test_a_line_can_be_hidden(chromium, finished):
    chromium.show(write_page(finished))
    chromium.find("figure[data-metric='loss'] .legend button").click()
    assert chromium.count_pixels("loss", TRAIN) == 0
    assert chromium.count_pixels("loss", EVAL) > 100


def test_samples_are_leafed_through_and_wrong_ones_are_marked(chromium, finished):
    chromium.show(write_page(finished))
    assert "step 100" in chromium.find("#samples output").text
    chromium.find("#samples button[aria-label=Earlier]").click()
    assert "step 80 · 4 of 5" in chromium.find("#samples output").text
    assert "row of 80" in chromium.find("#samples table").text
    marks = chromium.run(
        "return [...document.querySelectorAll('#samples tbody tr')].map((row) => row.className)"
    )
    assert marks == ["wrong", "right"]  # those that were wrong come first


def test_arguments_that_differ_from_the_defaults_come_first(chromium, finished):
    defaults = {"learning_rate": 5e-5, "seed": 42, "warmup_steps": 0, "hub_token": None}
    chromium.show(write_page(finished, defaults=defaults))
    first = chromium.find("#arguments table").text.split()
    assert first == ["Argument", "Value", "Default", "learning_rate", "0.002", "5e-5"]
    assert chromium.find("#arguments details").text == "All 4 arguments"


def test_values_that_were_not_finite_are_said_under_their_chart(chromium, finished):
    finished.begin("second")
    for step in range(1, 5):
        finished.log(step, loss=float("nan") if step > 2 else 1.0)
    chromium.show(write_page(finished))
    said = chromium.find("figure[data-metric='loss'] .alarm").text
    assert said == "train: 2 values were not finite, first at step 3."
    assert chromium.errors() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_readable_on_a_phone(chromium, finished, scheme):
    chromium.show(write_page(finished), width=360, height=740, scheme=scheme)
    assert chromium.run("return document.documentElement.scrollWidth") == 360
    wide = (
        "return [...document.querySelectorAll('canvas, section, figure, h1, .toolbar')]"
        ".filter((e) => e.getBoundingClientRect().right > 361).length"
    )
    assert chromium.run(wide) == 0
    assert chromium.count_pixels("loss", TRAIN if scheme == "light" else TRAIN_BY_NIGHT) > 200
    assert chromium.errors() == []


def contrast(chromium, selector):
    """The contrast of an element's text with what is behind it, as WCAG counts it."""
    return chromium.run(
        "const light = (c) => { const v = c.match(/[\\d.]+/g).slice(0, 3).map((x) => x / 255)"
        ".map((x) => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);"
        "return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2] };"
        "const e = document.querySelector(arguments[0]); let back = e;"
        "while (getComputedStyle(back).backgroundColor === 'rgba(0, 0, 0, 0)') back = back.parentElement;"
        "const [a, b] = [light(getComputedStyle(e).color), light(getComputedStyle(back).backgroundColor)];"
        "return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)",
        selector,
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_by_day_and_by_night(chromium, finished, scheme):
    chromium.show(write_page(finished), scheme=scheme)
    for selector in ("h1", "dt", "dd.note", ".legend .name", "th", "td", "footer", ".status", ".mark"):
        assert contrast(chromium, selector) >= 4.5, selector
    luminance = chromium.run("return getComputedStyle(document.body).backgroundColor")
    assert (luminance == "rgb(20, 23, 26)") == (scheme == "dark")


def test_on_paper_it_is_day(chromium, finished):
    chromium.show(write_page(finished), scheme="dark")
    printed = chromium.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")
    chromium.run("window.dispatchEvent(new Event('beforeprint'))")
    assert chromium.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert chromium.count_pixels("loss", TRAIN) > 200
    chromium.run("window.dispatchEvent(new Event('afterprint'))")
    assert chromium.count_pixels("loss", TRAIN_BY_NIGHT) > 200
    assert chromium.errors() == []


@pytest.mark.slow
def test_a_hundred_thousand_logs_open_at_once(chromium, written):
    written.begin(max_steps=100_000)
    with open(written.path, "a", encoding="utf-8") as file:
        for step in range(1, 100_001):
            logs = {
                "loss": 1 + step % 97 / 100 + 1e4 / step,
                "grad_norm": step % 13,
                "learning_rate": 1 / step,
            }
            moment = {"time": 1.7e9 + step / 100, "step": step, "epoch": step / 5000}
            seconds = {"forward": 0.004, "backward": 0.006}
            file.write(json.dumps({"kind": "log", **moment, "logs": logs, "seconds": seconds}) + "\n")
    where = write_page(written)
    assert (written.folder / "report.html").stat().st_size < 10_000_000
    chromium.show(where)
    opened = chromium.run("return performance.getEntriesByName('drawn')[0].startTime")
    assert opened < 2000
    start = time.perf_counter()
    chromium.hover("loss", 50_000)
    chromium.run("view.smoothing = 0.9; redrawCharts()")
    assert time.perf_counter() - start < 2
    assert chromium.errors() == []


def test_runs_are_compared_on_the_same_axes(chromium, finished, tmp_path):
    other = type(finished)(tmp_path / "other")
    other.begin("other", settings={"learning_rate": 0.5})
    other.train(1, 60)
    chromium.show(write_page(finished, other, path=tmp_path / "comparison.html"))
    assert chromium.find("h1").text == "2 runs compared"
    assert chromium.count_pixels("loss", TRAIN) > 100
    assert chromium.count_pixels("loss", EVAL) > 100  # here the colour of the second run
    labels = chromium.find("figure[data-metric='loss'] .legend").text.split("\n")
    assert labels[0].startswith("run · train")
    assert labels[2].startswith("other · train") or labels[1].startswith("other · train")
    sections = chromium.run("return [...document.querySelectorAll('section')].map((s) => s.id)")
    assert sections[0] == "arguments"
    assert chromium.find("#arguments table").text.split()[-3:] == ["learning_rate", "0.002", "0.5"]
    assert chromium.errors() == []


def test_a_served_page_follows_the_run(chromium, written):
    written.begin()
    written.train(1, 30)
    with ReportServer([RunSource(written.folder)], {}, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            chromium.show(server.url)
            assert chromium.run("return data.runs[0].step") == 30
            chromium.run("view.smoothing = 0.5")
            written.train(31, 100)
            written.end()
            WebDriverWait(chromium.driver, 15).until(
                lambda _: chromium.run("return data.runs[0].step") == 100
            )
            assert chromium.find(".status").text == "finished"
            assert chromium.run("return view.smoothing") == 0.5
            asked = [address for address in chromium.requests() if not address.startswith("data:")]
            assert {address.removeprefix(server.url) for address in asked} == {"", "data.json"}
            assert chromium.errors() == []
        finally:
            chromium.driver.get("about:blank")
            server.shutdown()
            thread.join()


def test_a_run_without_logs_is_a_page_too(chromium, written):
    written.begin()
    chromium.show(write_page(written))
    assert chromium.find("h1").text == "run"
    assert "Nothing is logged yet." in chromium.find("#curves").text
    assert chromium.errors() == []


def test_a_plot_draws_itself_in_a_notebook_cell(chromium, tmp_path):
    logs = [{"loss": 1 / step, "epoch": step / 10, "step": step} for step in range(1, 40)]
    cell = tmp_path / "cell.html"
    cell.write_text(f"<!doctype html><body>{Plot(logs)._repr_html_()}</body>", encoding="utf-8")
    chromium.show(cell.as_uri())
    chromium.driver.switch_to.frame(0)
    try:
        assert chromium.count_pixels("loss", TRAIN) > 200
        assert (
            chromium.run("return document.querySelectorAll('.choice button').length") == 2
        )  # no clock: no time
    finally:
        chromium.driver.switch_to.default_content()
    assert chromium.errors() == []


def test_a_table_of_long_names_fits_on_a_phone_and_on_paper(chromium, written):
    written.begin()
    name = "a_very_long_metric_name_that_somebody_has_chosen_for_it"
    for step in range(1, 4):
        scores = {f"eval_out_of_domain_{name}": 0.5, "eval_out_of_domain_runtime": 1234.5678}
        written.log(step, **scores, eval_out_of_domain_samples_per_second=1.0)
    where = write_page(written)
    chromium.show(where, width=360)
    fits = "const t = document.querySelector('#results .scroll'); return t.scrollWidth <= t.clientWidth"
    assert chromium.run(fits)
    chromium.show(where)
    chromium.run("document.documentElement.classList.add('paper'); render()")
    assert chromium.run(fits)
    assert (
        chromium.run("return document.getElementById('report').offsetWidth") <= 680
    )  # of A4, in its margins


def test_one_point_of_everything_is_not_called_nothing(chromium, written):
    written.begin()
    written.log(50, loss=1.0)
    chromium.show(write_page(written))
    assert "under Results" in chromium.find("#curves").text


def test_splits_of_compared_runs_have_lines_of_their_own(chromium, written):
    written.begin()
    for step in (1, 2):
        written.log(step, loss=1.0)
        for split in ("eval", "eval_dev", "eval_ood", "held"):
            written.log(
                step, **{f"{split}_loss": 2.0, f"{split}_runtime": 1.0, f"{split}_samples_per_second": 1.0}
            )
    chromium.show(write_page(written, written))
    lines = "return planCharts(data.runs)[0].lines.map((l) => `${l.color} ${l.dash}`)"
    assert len(set(chromium.run(lines))) == 10


def test_a_measure_is_not_marked_as_wrong_because_it_is_not_equal(chromium, written):
    written.begin()
    rows = [{"row": 1, "target": 2.5, "prediction": 2.4375}, {"row": 2, "target": 3, "prediction": 4}]
    written.write("samples", step=1, source="eval", rows=rows)
    written.log(1, loss=1.0)
    chromium.show(write_page(written))
    marked = chromium.run(
        "return [...document.querySelectorAll('#samples tbody tr')].map((r) => r.innerText)"
    )
    assert [text.strip().startswith("\u2715") for text in marked] == [
        True,
        False,
    ]  # the class, not the measure
