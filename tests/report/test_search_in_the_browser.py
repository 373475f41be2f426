"""The page of a search in a real Chromium: drawn, hovered, sorted, filtered, safe, fast, by night, live."""

from __future__ import annotations

import json
import math
import os
import threading

import pytest
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.support.ui import WebDriverWait

from footplate.search.outcomes import Outcome
from footplate.search.page import save_search_page
from footplate.search.record import TrialRecord
from footplate.search.source import SearchServer, SearchSource
from footplate.search.summary import SearchSummary

HOSTILE = "</script><script>document.title = 'pwned'</script><img src=x onerror=\"document.title = 'pwned'\">"
STATES = {3: "pruned", 5: "failed"}


def some_trials(count=8, num_objectives=1):
    """Trials of every state; the best one is number 6."""
    for n in range(count):
        state = STATES.get(n, "complete")
        values = [abs(n - 6) / 10 + 0.1, float(n)][:num_objectives]
        params = {"learning_rate": 10.0 ** -(n % 4 + 1), "batch": 2 ** (n % 3), "schedule": "ab"[n % 2]}
        if n % 2:
            params["only_odd"] = n / 4
        if state == "failed":
            yield Outcome(n, state, params, folder=f"run-{n}", seconds=2.0, error=f"ValueError: {HOSTILE}")
        else:
            yield Outcome(n, state, params, values, 10 * n, f"run-{n}", f"checkpoint-{10 * n}", 60.0)


def write_search(
    folder, outcomes, directions=("minimize",), num_trials=10, is_over=True, objective="eval_loss"
):
    """The page of a search, as an address."""
    about = {"backend": "random", "directions": list(directions), "objective": objective}
    outcomes = list(outcomes)
    record = TrialRecord(str(folder), about, resumes=False)
    with open(record.path, "a", encoding="utf-8") as file:  # at once: each `add` waits for the disk
        file.writelines(json.dumps(outcome.to_line()) + "\n" for outcome in outcomes)
    for name in {outcome.folder for outcome in outcomes}:
        os.makedirs(folder / name, exist_ok=True)
        (folder / name / "report.html").write_text("<title>its own page</title>")
    save_search_page(SearchSummary(str(folder), objective, list(directions), outcomes), num_trials, is_over)
    return (folder / "report.html").as_uri()


def texts(chromium, selector):
    return chromium.run(
        "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText.trim())", selector
    )


def order(chromium):
    """The numbers in the rows that are shown, from the top."""
    return chromium.run(
        "return [...document.querySelectorAll('.trials tbody tr')].filter((r) => !r.hidden)"
        ".map((r) => Number(r.dataset.trial))"
    )


def chosen(chromium):
    return chromium.run("return [...document.querySelectorAll('tr.chosen')].map((r) => r.dataset.trial)")


def move_to(chromium, picture, x, y):
    """Put the pointer over a place of a picture."""
    holder = chromium.find(f"figure[data-picture='{picture}'] .picture")
    chromium.run("arguments[0].scrollIntoView({block: 'center'})", holder)
    width, height = chromium.run("return [arguments[0].offsetWidth, arguments[0].offsetHeight]", holder)
    ActionChains(chromium.driver).move_to_element_with_offset(
        holder, round(x - width / 2), round(y - height / 2)
    ).perform()


def place_of(chromium, picture, number):
    """Where a trial has its point."""
    return chromium.run(
        "const chart = charts.find((c) => c.holder.dataset.focus === arguments[0]);"
        "const at = chart.place(model.byNumber.get(arguments[1])); return [at.x, at.y]",
        picture,
        number,
    )


def test_it_says_what_the_search_is_and_which_trial_is_best(chromium, tmp_path):
    chromium.show(write_search(tmp_path / "sweep", some_trials()))
    assert chromium.find("h1").text == "sweep"
    assert chromium.find(".status").text == "ended"  # with eight trials of ten
    facts = chromium.find(".facts").text
    assert "eval_loss\nlower is better" in facts
    assert "of 10: 6 complete, 1 pruned, 1 failed" in facts
    best = chromium.find("#best").text
    assert "trial 6: eval_loss 0.1 at step 60" in best
    assert str(tmp_path / "sweep" / "run-6" / "checkpoint-60") in best
    assert chromium.find("#best a").get_attribute("href").endswith("/sweep/run-6/report.html")
    assert chromium.errors() == []
    assert [url for url in chromium.requests() if not url.startswith(("file:", "data:"))] == []
    chromium.find(".trials tbody a").click()
    assert chromium.driver.title == "its own page"


def test_hovering_a_point_or_a_line_marks_the_row_and_names_the_trial(chromium, tmp_path):
    chromium.show(write_search(tmp_path, some_trials()))
    move_to(chromium, "over objective 0", *place_of(chromium, "over objective 0", 2))
    assert chosen(chromium) == ["2"]
    tip = chromium.find("figure[data-picture='over objective 0'] .tip").text
    assert tip.startswith("trial 2 · complete")
    assert "learning_rate" in tip
    assert set(texts(chromium, ".said")) == {"trial 2 · complete"}
    ys = chromium.run(
        "return [...document.querySelectorAll('[data-picture=parallel] .marked circle')].length"
    )
    assert ys == 5  # an axis for each name and one for the objective
    line = chromium.run(
        "highlight(4); const c = [...document.querySelectorAll('[data-picture=parallel] .marked circle')];"
        "const at = (i) => [Number(c[i].getAttribute('cx')), Number(c[i].getAttribute('cy'))];"
        "highlight(null); return [0, 1].map((k) => (at(0)[k] * 3 + at(1)[k]) / 4)"
    )
    move_to(chromium, "parallel", *line)
    assert chosen(chromium) == ["4"]
    assert chromium.errors() == []


def test_hovering_or_focusing_a_row_marks_its_line_and_its_point(chromium, tmp_path):
    chromium.show(write_search(tmp_path, some_trials()))
    row = chromium.find("tr[data-trial='3']")
    chromium.run("arguments[0].scrollIntoView({block: 'center'})", row)
    ActionChains(chromium.driver).move_to_element(row).perform()
    assert set(texts(chromium, ".said")) == {"trial 3 · pruned"}
    assert chromium.run("return document.querySelectorAll('.marked .trial.pruned').length") == 1
    assert chromium.run("return document.querySelectorAll('.marked .sign.pruned').length") == 1
    chromium.run("document.querySelector('tr[data-trial=\"5\"] a').focus({preventScroll: true})")
    assert set(texts(chromium, ".said")) == {"trial 5 · failed"}


def test_arrow_keys_go_from_trial_to_trial_and_say_what_they_are(chromium, tmp_path):
    chromium.show(write_search(tmp_path, some_trials()))
    picture = chromium.find("figure[data-picture=parallel] .picture")
    chromium.run("arguments[0].focus()", picture)
    picture.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert chosen(chromium) == ["1"]
    assert chromium.run("return announcer.textContent") == "Trial 1, complete, eval_loss 0.6"
    picture.send_keys(Keys.END, Keys.ESCAPE)
    assert chosen(chromium) == []


def test_a_click_on_a_head_sorts_by_it_and_what_is_missing_comes_last(chromium, tmp_path):
    chromium.show(write_search(tmp_path, some_trials()))
    assert order(chromium) == [6, 7, 4, 3, 2, 1, 0, 5]  # the best first, the one without an objective last
    heads = {text: index for index, text in enumerate(texts(chromium, ".trials th"))}
    buttons = chromium.driver.find_elements("css selector", ".trials th button")
    buttons[heads["Trial"]].click()
    assert order(chromium) == list(range(8))
    buttons[heads["only_odd"]].click()
    assert order(chromium) == [1, 3, 5, 7, 0, 2, 4, 6]
    buttons[heads["only_odd"]].click()
    assert order(chromium) == [7, 5, 3, 1, 0, 2, 4, 6]
    sorts = chromium.run(
        "return [...document.querySelectorAll('.trials th')].map((t) => t.getAttribute('aria-sort'))"
    )
    assert [sort for sort in sorts if sort] == ["descending"]
    assert sorts[heads["only_odd"]] == "descending"
    assert chromium.errors() == []


def test_states_are_told_apart_by_shape_and_can_be_hidden(chromium, tmp_path):
    chromium.show(write_search(tmp_path, some_trials()))
    dashes = chromium.run(
        "return ['complete', 'pruned', 'failed'].map((s) => "
        "getComputedStyle(document.querySelector(`[data-picture=parallel] .trial.${s}`)).strokeDasharray)"
    )
    assert len(set(dashes)) == 3
    chromium.find("button[data-focus='state complete']").click()
    assert order(chromium) == [3, 5]
    assert "2 of 8 shown" in chromium.find(".toolbar").text
    assert chromium.run("return document.activeElement.dataset.focus") == "state complete"
    chromium.find("button[data-focus=all]").click()
    assert len(order(chromium)) == 8
    assert chromium.errors() == []


def test_dragging_along_an_axis_keeps_the_trials_that_pass_there(chromium, tmp_path):
    chromium.show(write_search(tmp_path, some_trials()))
    handle = chromium.driver.find_elements("css selector", ".handle")[0]  # of learning_rate
    chromium.run("arguments[0].scrollIntoView({block: 'center'})", handle)
    height = chromium.run("return arguments[0].getBoundingClientRect().height", handle)
    chain = ActionChains(chromium.driver).move_to_element_with_offset(handle, 0, round(-height / 2 + 2))
    chain.click_and_hold().move_by_offset(0, round(height * 0.4)).release().perform()
    assert sorted(order(chromium)) == [0, 1, 4, 5]  # 0.1 and 0.01, on a logarithmic axis
    assert chromium.run("return document.querySelectorAll('.trial.off').length") == 4
    ActionChains(chromium.driver).move_to_element(handle).click().perform()
    assert len(order(chromium)) == 8
    assert chromium.errors() == []


def test_text_of_trials_stays_text(chromium, tmp_path):
    outcomes = [
        Outcome(
            n, "complete", {HOSTILE: HOSTILE + str(n), "x": n}, [n / 2], 1, f"run-{n}", HOSTILE, 1.0, HOSTILE
        )
        for n in range(3)
    ]
    chromium.show(write_search(tmp_path, outcomes, objective=HOSTILE))
    chromium.run("highlight(1, charts[0].holder)")
    assert chromium.run("return document.querySelectorAll('#report img, #report script').length") == 0
    assert chromium.driver.title != "pwned"
    assert HOSTILE[:40] in chromium.find("#best").text
    assert chromium.errors() == []


def test_two_objectives_are_a_scatter_with_its_front(chromium, tmp_path):
    chromium.show(write_search(tmp_path, some_trials(12, 2), ("minimize", "maximize"), objective="both"))
    pictures = chromium.run("return charts.map((c) => c.holder.dataset.focus)")
    assert pictures == ["pair objective 0 objective 1", "over objective 0", "over objective 1", "parallel"]
    assert chromium.run("return data.search.best") == [6, 7, 8, 9, 10, 11]
    pair = "figure[data-picture='pair objective 0 objective 1']"
    assert chromium.run("return document.querySelectorAll(arguments[0] + ' .sign.best').length", pair) == 6
    assert (
        chromium.run("return document.querySelector(arguments[0] + ' .trace').getAttribute('d')", pair).count(
            "V"
        )
        == 5
    )
    assert [row.split()[0] for row in texts(chromium, "#best tbody tr")] == ["6", "7", "8", "9", "10", "11"]
    chromium.find("button[data-focus='color 1']").click()
    assert "best both 2" in chromium.find("figure[data-picture=parallel] .legend").text
    assert chromium.errors() == []


ODD = {
    "no trial": [],
    "one trial": [Outcome(0, "complete", {"a": 1.0}, [2.0], 3, "run-0")],
    "all failed": [Outcome(n, "failed", {"a": n}, None, None, f"run-{n}", error="no") for n in range(3)],
    "not finite": [
        Outcome(n, "complete", {"a": v, "b": -v}, [v], 1, f"run-{n}")
        for n, v in enumerate([math.inf, 1.0, -math.inf, 1e308, -1e308, 5e-324, 2.0**1000])
    ],
    "all the same": [Outcome(n, "complete", {"a": 7}, [7.0], 1, f"run-{n}") for n in range(3)],
    "mixed kinds": [
        Outcome(n, "complete", {"a": v}, [float(n)], 1, f"run-{n}")
        for n, v in enumerate([1, "1", True, None, 0.5, "nan", math.nan, [1], {"b": 2}])
    ],
    "many categories": [Outcome(n, "complete", {"a": f"word {n}"}, [1.0], 1, f"run-{n}") for n in range(60)],
    "very close": [
        Outcome(n, "complete", {"a": 1e16 + 2 * n}, [1 + n * 2**-52], 1, f"run-{n}") for n in range(3)
    ],
}


@pytest.mark.parametrize("case", ODD)
def test_whatever_trials_there_are_every_one_has_its_place(chromium, tmp_path, case):
    chromium.show(write_search(tmp_path, ODD[case], is_over=False))
    assert chromium.errors() == []
    assert chromium.find(".status").text == "running"
    paths = chromium.run(
        "return [...document.querySelectorAll('.picture path, .picture circle, .picture text')].map((e) =>"
        "  [...e.attributes].map((a) => a.value).join(' '))"
    )
    assert not [path for path in paths if "NaN" in path or "Infinity" in path or "undefined" in path]
    for number in [outcome.number for outcome in ODD[case]][:5]:
        chromium.run("highlight(arguments[0], charts[0].holder)", number)
    assert chromium.errors() == []
    if not ODD[case]:
        assert "No trial has ended yet." in chromium.find("#report").text
        assert chromium.run("return document.querySelectorAll('figure, table').length") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_readable_on_a_phone_by_day_and_by_night(chromium, tmp_path, scheme):
    chromium.show(write_search(tmp_path, some_trials()), width=360, height=740, scheme=scheme)
    assert chromium.run("return document.documentElement.scrollWidth") == 360
    best = chromium.run("return getComputedStyle(document.querySelector('.picture .level-6')).stroke")
    assert best == ("rgb(20, 32, 107)" if scheme == "light" else "rgb(242, 243, 168)")
    background = chromium.run("return getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(20, 23, 26)") == (scheme == "dark")
    assert chromium.errors() == []


def test_on_paper_all_rows_are_there(chromium, tmp_path):
    chromium.show(write_search(tmp_path, some_trials(40)), scheme="dark")
    chromium.run("window.dispatchEvent(new Event('beforeprint'))")
    tall = "const t = document.querySelector('.tall'); return t.scrollHeight - t.clientHeight"
    assert chromium.run(tall) <= 1
    assert chromium.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert chromium.run("return document.querySelector('.picture svg').clientWidth") < 680
    assert chromium.errors() == []


def test_a_thousand_trials_open_at_once(chromium, tmp_path):
    outcomes = [
        Outcome(
            n,
            ("complete", "complete", "pruned", "failed")[n % 4],
            {f"a_name_of_usual_length_{k}": (n * 37 + k * k) % 101 / 7 for k in range(8)},
            [1 + (n * 61 % 997) / 100],
            n,
            "run-0",
            error="an error" if n % 4 == 3 else None,
        )
        for n in range(1000)
    ]
    chromium.show(write_search(tmp_path, outcomes))
    assert (tmp_path / "report.html").stat().st_size < 2_000_000
    assert chromium.run("return performance.getEntriesByName('drawn')[0].startTime") < 2000  # a busy machine
    WebDriverWait(chromium.driver, 15).until(lambda _: len(order(chromium)) == 1000)
    assert (
        chromium.run("return document.querySelectorAll('[data-picture=parallel] .all path').length") == 1000
    )
    spent = chromium.run(
        "const start = performance.now();"
        "for (let n = 0; n < 20; n++) { highlight(n, charts[n % 2].holder); document.body.offsetHeight }"
        "return performance.now() - start"
    )
    assert spent < 2000
    assert chromium.errors() == []


def test_a_served_page_follows_the_search_and_keeps_what_was_chosen(chromium, tmp_path):
    trials = list(some_trials(9))
    write_search(tmp_path, trials[:4], num_trials=9, is_over=False)
    (tmp_path / "run-0" / "events.jsonl").write_text(
        json.dumps({"kind": "begin", "name": "the first"}) + "\n"
    )
    is_going = [True]
    with SearchServer(SearchSource(tmp_path, lambda: is_going[0]), 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            chromium.show(server.url)
            assert chromium.find(".status").text == "running"
            assert "of 9" in chromium.find(".facts").text
            chromium.find("button[data-focus='sort trial']").click()
            record = TrialRecord(
                str(tmp_path), {"backend": "random", "directions": ["minimize"], "objective": "eval_loss"}
            )
            for outcome in trials[4:]:
                record.add(outcome)
            is_going[0] = False
            WebDriverWait(chromium.driver, 15).until(lambda _: len(order(chromium)) == 9)
            assert order(chromium) == list(range(9))
            assert chromium.run("return document.activeElement.dataset.focus") == "sort trial"
            assert chromium.find(".status").text == "finished"
            assert chromium.errors() == []
            chromium.find("tr[data-trial='0'] a").click()
            assert chromium.driver.title == "the first · footplate"
        finally:
            chromium.driver.get("about:blank")
            server.shutdown()
            thread.join()
