"""The map of modules in a real Chromium: its colours, its readings, its lines, by mouse and by keyboard."""

from __future__ import annotations

import math

import pytest
from selenium.webdriver import ActionChains, Keys

from footplate.report.files import save_text
from footplate.report.page import build_page, describe_runs
from footplate.report.source import RunSource

HOSTILE = "<img src=x onerror=\"document.title = 'pwned'\">"
LOWEST, HIGHEST, RED = (68, 1, 84), (253, 231, 37), (230, 50, 20)
NAMES = ["words", "layer.0.attention", "layer.0.dense", f"layer.1.{HOSTILE}", "head"]


def show(chromium, *runs, **options):
    sources = [RunSource(run.folder) for run in runs]
    for source in sources:
        source.update()
    path = runs[0].folder / "report.html"
    save_text(build_page(describe_runs([source.data for source in sources])), path)
    chromium.show(path.as_uri(), **options)


def write_modules(run, names=NAMES, num_columns=30, factor=1.0, **changed):
    run.begin()
    run.train(1, 5)
    for column in range(num_columns):
        rows = range(len(names))
        values = {
            "grad_norm": [10.0 ** (row % 5 - 2) * factor for row in rows],
            "update_ratio": [1e-3 * (1 + row) * (1 + math.sin(column) / 2) for row in rows],
            "weight_norm": [float(1 + column)] * len(names),
        }
        values = {key: changed.get(key, {}).get(column, given) for key, given in values.items()}
        run.write(
            "modules", 1.0, step=10 * (column + 1), **values, **({"names": names} if not column else {})
        )


def color_at(chromium, row, column):
    """The colour of a cell on the screen."""
    script = """
        const [row, column] = arguments, map = readMap(data.runs[0].notes.modules, moduleView.measure);
        const holder = document.querySelector('#modules .map'), canvas = holder.querySelector('canvas');
        const at = layOut(map, holder, new OffscreenCanvas(9, 9));
        const x = at.left + (column + 0.5) * at.columnWidth, y = (row + 0.5) * at.rowHeight;
        const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d');
        copy.drawImage(canvas, 0, 0);  // reading back from the map itself would slow it down
        return [...copy.getImageData(x, y + 4, 1, 1).data];
    """
    return tuple(chromium.run(script, row, column))


def point_at(chromium, row, column):
    """Put the pointer over a cell, and read what is said of it."""
    place = """
        const [row, column] = arguments, map = readMap(data.runs[0].notes.modules, moduleView.measure);
        const holder = document.querySelector('#modules .map');
        const at = layOut(map, holder, new OffscreenCanvas(9, 9)), box = holder.getBoundingClientRect();
        const [x, y] = [at.left + (column + 0.5) * at.columnWidth, (row + 0.5) * at.rowHeight];
        return [x - box.width / 2, y - box.height / 2];
    """
    holder = chromium.find("#modules .map")
    chromium.run("arguments[0].scrollIntoView({block: 'center'})", holder)
    x, y = chromium.run(place, row, column)
    ActionChains(chromium.driver).move_to_element_with_offset(holder, round(x), round(y)).perform()
    return chromium.find("#modules .map-readout").text


def press(chromium, label):
    buttons = "[...document.querySelectorAll('#modules button')]"
    chromium.run(f"{buttons}.find((b) => b.textContent === arguments[0]).click()", label)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_small_values_are_dark_and_large_ones_bright(chromium, written, scheme):
    write_modules(written)
    show(chromium, written, scheme=scheme)
    assert color_at(chromium, 0, 3)[:3] == LOWEST
    assert color_at(chromium, 4, 3)[:3] == HIGHEST
    assert chromium.find("#modules h3").text == "Gradient norm of each module"
    assert "0.01" in chromium.find(".map-legend").text
    assert chromium.errors() == []
    assert chromium.run("return document.title") != "pwned"


def test_pointing_at_a_cell_reads_module_step_and_value(chromium, written):
    write_modules(written)
    show(chromium, written)
    assert "Point at a module" in chromium.find("#modules .map-readout").text
    assert point_at(chromium, 1, 2) == "layer.0.attention step 30 · gradient norm 0.1"
    assert point_at(chromium, 3, 29) == f"layer.1.{HOSTILE} step 300 · gradient norm 10"
    press(chromium, "weight norm")
    assert point_at(chromium, 2, 6) == "layer.0.dense step 70 · weight norm 7"
    pressed = chromium.run(
        "return [...document.querySelectorAll('#modules [aria-pressed=true]')].map((b) => b.textContent)"
    )
    assert pressed[0] == "weight norm"


def test_the_usual_update_ratio_is_marked(chromium, written):
    write_modules(written)
    show(chromium, written)
    assert chromium.run("return document.querySelectorAll('.map-scale b').length") == 0
    press(chromium, "update ratio")
    assert chromium.run("return document.querySelector('.map-scale b').title") == "usual: 0.001"
    assert "about 0.001 is usual" in chromium.find("#modules").text


def test_a_click_draws_the_line_of_a_module_and_another_removes_it(chromium, written):
    write_modules(written)
    show(chromium, written)
    press(chromium, "update ratio")
    for row in (0, 4):
        point_at(chromium, row, 3)
        ActionChains(chromium.driver).click().perform()
    lines = "return [...document.querySelectorAll('#modules .legend button .name')].map((n) => n.textContent)"
    assert chromium.run(lines) == ["words", "head"]
    assert chromium.count_pixels("modules", (0, 114, 178)) > 30
    assert chromium.find("figure[data-metric='modules'] h3").text == "Update ratio of the chosen modules"
    assert chromium.run("return charts.filter((c) => places.modules.contains(c.root)).length") == 1
    point_at(chromium, 0, 3)
    ActionChains(chromium.driver).click().perform()
    assert chromium.run(lines) == ["head"]
    assert chromium.errors() == []


def test_it_is_read_with_the_keyboard_alone(chromium, written):
    write_modules(written)
    show(chromium, written)
    holder = chromium.find("#modules .map")
    assert "5 modules, 30 measured updates from step 10 to 300" in holder.get_attribute("aria-label")
    chromium.run("arguments[0].focus()", holder)

    def key(*keys):
        ActionChains(chromium.driver).send_keys(*keys).perform()
        return chromium.find("#modules .map-readout").text

    assert key(Keys.ARROW_DOWN) == "words step 300 · gradient norm 0.01"  # where the reader is
    assert key(Keys.ARROW_DOWN, Keys.ARROW_LEFT) == "layer.0.attention step 290 · gradient norm 0.1"
    assert key(Keys.HOME, Keys.PAGE_DOWN) == "head step 10 · gradient norm 100"
    assert key(Keys.ENTER) == "head step 10 · gradient norm 100"
    assert chromium.find("#modules .legend button .name").text == "head"
    assert chromium.run("return document.activeElement.dataset.focus") == "map of modules"
    chromium.run("render()")  # as a live page does when there is something new
    assert chromium.run("return document.activeElement.dataset.focus") == "map of modules"
    assert "Point at a module" in key(Keys.ESCAPE)


def test_the_numbers_are_there_as_text_too(chromium, written):
    write_modules(written)
    show(chromium, written)
    assert chromium.run("return document.querySelectorAll('#modules tbody tr').length") == 0
    chromium.run("document.querySelector('#modules summary').click()")
    chromium.driver.implicitly_wait(5)
    first = chromium.find("#modules tbody tr")
    cells = chromium.run("return [...arguments[0].cells].map((c) => c.textContent)", first)
    assert cells == ["words", "0.01", "6.68e-4", "30"]
    assert chromium.run("return document.querySelectorAll('#modules tbody tr').length") == len(NAMES)


def test_what_is_not_finite_or_zero_or_missing_is_told_apart(chromium, written):
    bad = {7: ["NaN", 0.0, None, 10.0, 100.0]}
    write_modules(written, grad_norm=bad)
    show(chromium, written)
    assert color_at(chromium, 0, 7)[:3] == RED
    assert color_at(chromium, 1, 7) == (0, 0, 0, 255)
    assert color_at(chromium, 2, 7)[3] == 0
    assert point_at(chromium, 0, 7) == "words step 80 · gradient norm not finite (NaN)"
    assert point_at(chromium, 2, 7) == "layer.0.dense step 80 · gradient norm no value"
    alarm = chromium.find("#modules .alarm").text
    assert alarm == "1 value was not finite, first the gradient norm of words at step 80."
    assert "zero" in chromium.find(".map-legend").text


def test_a_run_that_was_not_measured_has_no_such_part(chromium, finished):
    show(chromium, finished)
    assert chromium.run("return document.querySelector('#modules')") is None


def test_of_several_runs_one_is_chosen_and_named(chromium, write_run, tmp_path):
    one, two, plain = (write_run(tmp_path / name) for name in ("one", "two", "plain"))
    plain.begin()
    plain.train(1, 5)
    write_modules(one)
    write_modules(two, factor=1e-5)
    show(chromium, plain, one, two)
    options = chromium.run(
        "return [...document.querySelectorAll('#modules select option')].map((o) => o.value)"
    )
    assert options == ["one", "two"]
    chromium.run(
        "const select = document.querySelector('#modules select');"
        "select.value = 'two'; select.dispatchEvent(new Event('change'))"
    )
    assert "1e-7" in chromium.find(".map-legend").text
    show(chromium, plain, one)
    assert chromium.find("#modules .controls b").text == "one"


def test_it_is_quick_and_fits_a_phone_with_500_modules(chromium, written):
    names = [f"model.layers.{layer}.{part}" for layer in range(50) for part in "abcdefghij"]
    write_modules(written, names, num_columns=200)
    show(chromium, written, width=390, height=844)
    assert chromium.run("return document.documentElement.scrollWidth") <= 390
    milliseconds = """
        const begin = performance.now(); redrawModules();
        document.querySelector('#modules canvas').getContext('2d').getImageData(0, 0, 1, 1);
        return performance.now() - begin;
    """
    assert min(chromium.run(milliseconds) for _ in range(3)) < 1000
    assert chromium.run("return document.querySelectorAll('#modules *').length") < 200
    assert chromium.errors() == []


def test_long_names_are_whole_on_a_phone(chromium, written):
    """Those of adapters: they differ in their ends, and have no place to break a line."""
    names = [f"base_model.model.bert.encoder.layer.{i}.attention.self.query.lora_A.default" for i in range(3)]
    write_modules(written, names, grad_norm={3: [1.0, "NaN", 2.0]}, update_ratio={29: [0.0012345] * 3})
    show(chromium, written, width=390)
    chromium.run("moduleView.measure = 'update_ratio'; redrawModules()")
    chromium.run("for (const name of arguments[0].slice(0, 2)) chooseModule({ name, step: 300 })", names)
    outside, cut = chromium.run(
        """
        const right = (part) => {
          const range = document.createRange();
          range.selectNodeContents(part);
          return range.getBoundingClientRect().right;
        };
        const names = [...document.querySelectorAll('#modules .legend .name')];
        const parts = [...names, ...document.querySelectorAll('#modules .alarm, #modules .legend .value')];
        const outside = parts.filter((p) => right(p) > p.closest('figure').getBoundingClientRect().right);
        const cut = names.filter((name) => name.scrollWidth > name.clientWidth);
        return [outside.map((part) => part.innerText), cut.length];
        """
    )
    assert outside == []
    assert cut == 0
    assert chromium.errors() == []
