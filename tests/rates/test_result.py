"""`LearningRates`: what it says, prints, writes, and what a browser shows of it."""

from __future__ import annotations

import dataclasses
import json
import math
import re

import numpy as np
import pytest
from selenium.webdriver import ActionChains, Keys

import footplate
from footplate.rates.result import LearningRates, build_result

HOSTILE = "</script><script>document.title = 'pwned'</script><img src=x onerror=\"document.title = 'pwned'\">"
RATES = [float(rate) for rate in np.logspace(-7, 1, 100)]


def falls(count=100, noise=0.03):
    """Losses that fall from 3 to 1, fastest at 0.01, and rise from 0.3 on."""
    logs = np.log10(np.array(RATES[:count]) / 1e-2)
    drawn = noise * np.random.default_rng(0).standard_normal(count)
    return [*(3.0 - 2.0 / (1.0 + np.exp(-logs / 0.35)) + np.exp((logs - 1.5) * 6.0) + drawn).tolist()]


def result(losses=None, stopped="exploded", name="mine", current=1e-3, factors=(1.0,), rates=RATES):
    losses = falls(92) if losses is None else losses
    planned = (rates[0], rates[-1], len(rates))
    return build_result(rates[: len(losses)], losses, stopped, current, factors, planned, name, 1.25)


# ---- what it says ----


def test_it_is_a_public_name():
    assert footplate.LearningRates is LearningRates


def test_it_holds_the_curve_and_its_places():
    found = result()
    assert found.suggestion == pytest.approx(0.01, rel=0.6)
    assert float(f"{found.suggestion:.2g}") == found.suggestion  # nobody reads more digits
    assert found.rates == tuple(RATES[:92])
    assert len(found.losses) == len(found.smoothed) == 92
    assert found.minimum in found.rates
    assert found.diverges in found.rates
    assert found.problem == ""
    assert not found.still_falls
    assert repr(found) == f"LearningRates(suggestion={found.suggestion}, 92 rates)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.suggestion = 1.0


def test_a_last_loss_that_is_not_finite_is_left_out():
    found = result([*falls(80), math.inf], "loss not finite")
    assert len(found.rates) == len(found.losses) == 80
    assert found.suggestion is not None


def test_everything_is_strict_json():
    for found in (result(), result([math.nan], "loss not finite"), result([2.0] * 100, "complete")):
        plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert plain["suggestion"] == found.suggestion
        assert plain["rates"] == list(found.rates)


def test_it_prints_what_matters_and_a_curve():
    text = str(result(current=5e-5, factors=(1.0, 0.1, 1.0)))
    assert max(map(len, text.splitlines())) <= 79
    lines = re.sub(r"\n {12}(?=[a-z])", " ", text).splitlines()
    assert lines[0].startswith("suggestion  0.0")
    assert lines[0].endswith(", where the loss falls fastest; 5e-05 is set")
    assert lines[1].startswith("loss        3.0")
    assert "(a tenth of that rate: 0.00" in lines[1]
    assert "above its start from 0." in lines[1]
    assert lines[2] == "tried       92 of 100 rates from 1e-07 to 10, then the loss exploded, in 1.2 s"
    assert lines[3] == "groups      each keeps its share of the rate: 1, 0.1"
    drawn = lines[5:]
    assert len(drawn) == 10
    assert drawn[-1].split() == ["1e-07", "2.3"]
    assert all(line.isascii() and len(line) <= 72 for line in drawn)
    mark = drawn[-2].index("^")
    assert (
        12 + 59 * (math.log(1e5 * 0.5) / math.log(2.3e7)) < mark < 12 + 59 * (math.log(3e5) / math.log(2.3e7))
    )


def test_the_drawing_reaches_from_top_to_bottom_though_one_loss_was_low():
    found = result()
    one_low = dataclasses.replace(found, losses=(*found.losses[:40], -50.0, *found.losses[41:]))
    assert str(one_low) == str(found)


def test_a_curve_that_is_not_seen_to_its_end_says_so():
    found = result(falls(72), "complete", rates=RATES[:72])
    assert found.suggestion is not None
    assert found.still_falls
    assert "lowest at the highest rate: a higher one may show more" in str(found)


@pytest.mark.parametrize(
    ("losses", "stopped", "said"),
    [
        ([], "no more data", "only 0 updates: then the data gave no batch any more. Use data that can be"),
        ([3.0] * 4, "no more data", "only 4 updates: then the data gave no batch any more"),
        ([math.nan], "loss not finite", "the first loss is nan, before any step: the rate is not the reason"),
        ([3.0], "gradients not finite", "gradients of the first update are not finite, before any step"),
        ([3.0, 9.0, 99.0], "exploded", "then the loss exploded, at 1.45e-07. Try lower rates: lowest=1e-10"),
        ([2.0 + math.exp(n / 8 - 3) for n in range(60)], "exploded", "rises from the lowest rates on"),
        ([2.0] * 100, "complete", "hardly changes (from 2 to 2). Try higher rates (highest=1000)"),
        ([2.0] * 60 + [9.0] * 10, "exploded", "hardly falls before it rises (from 2 to 2)"),
        (
            [2.0] * 40 + [math.nan],
            "loss not finite",
            "the loss was not finite at 0.000171, though the loss had",
        ),
        ([2.0] * 40, "gradients not finite", "If a row of the data is damaged, on_nonfinite='skip' leaves"),
        ([2.0] * 4 + [math.nan], "loss not finite", "lowest=1e-10. If a row of the data is damaged"),
    ],
)
def test_without_a_suggestion_it_says_why_and_what_to_try(losses, stopped, said, tmp_path):
    found = result(losses, stopped)
    assert found.suggestion is None
    assert said in found.problem
    assert str(found).startswith("suggestion  none: ")
    found.save(tmp_path / "lr.html")


def test_in_noise_more_rows_are_advised_and_higher_rates_only_where_the_loss_did_not_rise():
    noise = (2.0 + 0.5 * np.random.default_rng(0).standard_normal(100)).tolist()
    said = "num_updates=400) or more rows in each (gradient_accumulation_steps, per_device_train_batch_size)"
    assert f"{said}, or higher rates (highest=1000)." in result(noise, "complete").problem
    assert f"{said}." in result(noise, "exploded").problem


# ---- the page ----


def open_page(chromium, tmp_path, found, *where):
    found.save(tmp_path / "lr.html")
    chromium.show((tmp_path / "lr.html").as_uri(), *where)


def hover(chromium, share):
    """Put the pointer over a share of the picture's width, and read the tip."""
    picture = chromium.find(".picture")
    width = chromium.run("return arguments[0].offsetWidth", picture)
    ActionChains(chromium.driver).move_to_element_with_offset(
        picture, round(width * (share - 0.5)), 0
    ).perform()
    return chromium.run("const tip = document.querySelector('.tip'); return tip.hidden ? '' : tip.innerText")


def test_the_page_shows_the_curve_and_asks_for_nothing(chromium, tmp_path):
    found = result(name=HOSTILE)
    open_page(chromium, tmp_path, found)
    assert chromium.find("h1").text == "Learning rate"
    assert HOSTILE in chromium.find(".title").text
    facts = chromium.find(".facts").text
    assert f"Suggestion\n{found.suggestion:g}\nwhere the loss falls fastest" in facts
    assert "Set now\n0.001\n" in facts
    assert "Updates\n92\nof 100, then the loss exploded" in facts
    drawn = chromium.run("return [...document.querySelectorAll('.picture text')].map((e) => e.textContent)")
    assert f"suggestion {found.suggestion:g}" in drawn
    assert "set now: 0.001" in drawn
    assert "diverges" in drawn
    assert {"1e-7", "1e-4", "0.1"} <= set(drawn)
    assert chromium.errors() == []
    assert chromium.driver.title.startswith("Learning rate · </script>")  # text, which nothing has run
    assert [url for url in chromium.requests() if not url.startswith(("file:", "data:"))] == []


def test_the_marks_are_at_their_rates(chromium, tmp_path):
    found = result()
    open_page(chromium, tmp_path, found)
    left, right = chromium.run(
        "const all = [...document.querySelectorAll('.grid-line')]"
        ".filter((e) => e.getAttribute('y1') === e.getAttribute('y2'));"
        "return [Number(all[0].getAttribute('x1')), Number(all[0].getAttribute('x2'))]"
    )

    def place(rate):
        share = math.log(rate / found.rates[0]) / math.log(found.rates[-1] / found.rates[0])
        return pytest.approx(left + share * (right - left), abs=0.1)

    def at(selector, name="x1"):
        return chromium.run(
            "return Number(document.querySelector(arguments[0]).getAttribute(arguments[1]))", selector, name
        )

    assert at("line.suggestion") == place(found.suggestion)
    assert at("line.current") == place(found.current)
    assert at("circle.lowest", "cx") == place(found.minimum)
    assert at("rect.diverges", "x") == place(found.diverges)


def test_hovering_and_arrow_keys_read_values(chromium, tmp_path):
    found = result()
    open_page(chromium, tmp_path, found)
    number, _, rate, _, loss, _, smoothed = hover(chromium, 0.4).split()[1:]
    index = int(number) - 1
    assert float(rate) == pytest.approx(found.rates[index], rel=1e-2)
    assert float(loss) == pytest.approx(found.losses[index], rel=1e-4)
    assert float(smoothed) == pytest.approx(found.smoothed[index], rel=1e-4)
    ActionChains(chromium.driver).move_to_element(chromium.find("h1")).perform()
    assert chromium.run("return document.querySelector('.tip').hidden")
    picture = chromium.find(".picture")
    picture.send_keys(Keys.HOME)
    picture.send_keys(Keys.ARROW_RIGHT)
    assert chromium.find(".tip").text.startswith("update 2\n")
    assert chromium.find(".only-heard").get_attribute("textContent").startswith("rate 1.2e-7: loss ")
    picture.send_keys(Keys.ESCAPE)
    assert chromium.run("return document.querySelector('.tip').hidden")
    assert chromium.errors() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_phones_and_windows_by_day_and_by_night(chromium, tmp_path, width, scheme):
    open_page(chromium, tmp_path, result(), width, 900, scheme)
    assert chromium.run("return document.documentElement.scrollWidth <= innerWidth")
    boxes = chromium.run(
        "const outer = document.querySelector('.picture svg').getBoundingClientRect();"
        "return [...document.querySelectorAll('.picture text')].map((e) => e.getBoundingClientRect())"
        ".filter((b) => b.left < outer.left - 1 || b.right > outer.right + 1 || b.bottom > outer.bottom + 1)"
        ".length"
    )
    assert boxes == 0
    assert chromium.errors() == []


def test_no_suggestion_and_no_points_are_pages_too(chromium, tmp_path):
    open_page(chromium, tmp_path, result([math.nan], "loss not finite"))
    assert "There is no suggestion: the first loss is nan" in chromium.find(".alert.warning").text
    assert chromium.run("return document.querySelectorAll('figure').length") == 0
    open_page(chromium, tmp_path, result([3.0, 1e300, 1e308], "exploded"))
    assert chromium.run("return document.querySelectorAll('.losses').length") == 1
    open_page(chromium, tmp_path, result([2.0] * 100, "complete"))
    assert (
        chromium.run("return document.querySelector('.smoothed').getAttribute('d').includes('NaN')") is False
    )
    assert chromium.errors() == []


def test_ten_thousand_points_are_drawn_at_once(chromium, tmp_path):
    rates = [float(rate) for rate in np.logspace(-7, 1, 10_000)]
    losses = np.interp(np.log(rates), np.log(RATES), falls(noise=0.0)).tolist()
    open_page(chromium, tmp_path, result(losses, "complete", rates=rates))
    assert chromium.run("return performance.getEntriesByName('drawn')[0].startTime") < 1500
    assert "update" in hover(chromium, 0.5)


def test_a_notebook_shows_it_in_a_frame(chromium, tmp_path):
    cell = tmp_path / "cell.html"
    cell.write_text(f"<!doctype html><body>{result()._repr_html_()}</body>", encoding="utf-8")
    chromium.show(cell.as_uri())
    chromium.driver.switch_to.frame(0)
    assert chromium.find("h1").text == "Learning rate"
    assert chromium.run("return document.querySelectorAll('line.suggestion').length") == 1
    chromium.driver.switch_to.default_content()
    assert chromium.errors() == []
