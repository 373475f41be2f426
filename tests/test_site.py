"""The documentation as a site: built, every link alive, every name described, seen in a real Chromium."""

from __future__ import annotations

import dataclasses
import fcntl
import functools
import http.server
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import build_site
import footplate
import reference
import site_links
from browser import chromium  # noqa: F401 (a fixture)

ROOT = Path(__file__).parents[1]
LOOKS = [("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)]


@pytest.fixture(scope="session")
def site(tmp_path_factory, worker_id) -> Path:
    """The site, built once, whichever process comes first."""
    shared = tmp_path_factory.getbasetemp()
    root = (shared if worker_id == "master" else shared.parent) / "documentation"
    root.mkdir(exist_ok=True)
    with open(root / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / "problems").exists():
            shutil.copy(ROOT / "zensical.toml", root)
            (root / "src").symlink_to(ROOT / "src")
            (root / "problems").write_text("\n".join(build_site.build_site(root)))
    return root / "site"


@pytest.fixture(scope="module")
def address(site) -> Iterator[str]:
    """Where the site is served."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def read(site: Path, page: str) -> site_links.Page:
    return site_links.Page((site / page).read_text(encoding="utf-8"))


def test_the_site_is_built_and_every_link_leads_somewhere(site):
    assert (site.parent / "problems").read_text() == ""
    assert len(list(site.rglob("*.html"))) > 40


def test_every_page_is_in_the_navigation(tmp_path):
    pages = {str(path.relative_to(tmp_path)) for path in build_site.write_pages(tmp_path)}
    named = re.findall(r'"([\w/-]+\.md)"', (ROOT / "zensical.toml").read_text())
    assert sorted(named) == sorted(pages), "name the page in `nav` of zensical.toml"


def test_every_public_name_with_a_docstring_has_a_place(site):
    lacking = []
    for subject, names in reference.group_names().items():
        anchors = read(site, f"reference/{subject.slug}.html").anchors
        for name in filter(reference.is_described, names):
            place = f"{reference.home_of(name)}.{getattr(footplate, name).__qualname__}"
            lacking += [] if place in anchors else [name]
    assert lacking == []


def test_joints_of_the_trainer_have_a_place(site):
    anchors = read(site, "reference/trainers.html").anchors
    plain = ("compute_loss", "training_step", "evaluate", "log", "create_scheduler")
    for joint in (*plain, *reference.JOINTS):
        assert f"footplate.trainer.trainer.Trainer.{joint}" in anchors
    assert "footplate.trainer.trainer.Trainer._event" not in anchors


def test_every_setting_has_a_place_and_its_help(site):
    page = (site / "reference/settings.html").read_text(encoding="utf-8")
    anchors = site_links.Page(page).anchors
    settings = dataclasses.fields(footplate.Seq2SeqTrainingArguments)
    assert {field.name for field in settings} <= anchors
    assert "Epochs to train; a fraction ends inside the last one." in page


def test_the_first_mention_of_a_name_links_to_its_place():
    targets = {name: f"reference/settings.md#{name}" for name in ("save_steps", "Trainer")}
    text = "# `save_steps`\n[`save_steps`](a.md): {first} and `save_steps`, {second}\n```\n`Trainer`\n```\n"
    plain = text.format(first="`save_steps=5`", second="`Trainer(model)`")
    first = "[`save_steps=5`](reference/settings.md#save_steps)"
    second = "[`Trainer(model)`](reference/settings.md#Trainer)"
    assert build_site.link_names(plain, targets) == text.format(first=first, second=second)


def test_a_link_to_a_file_outside_of_the_pages_becomes_its_path():
    text = "[a/b.py](../a/b.py) ([how](../a/README.md)), [c](c.md)"
    assert build_site.name_files_outside(text) == "`a/b.py` (how: `a/README.md`), [c](c.md)"


@pytest.mark.parametrize(
    ("link", "says"),
    [
        ("b.html", None),
        ("b.html#there", None),
        ("https://example.org/project/footplate", None),
        ("missing.html", "leads to no file"),
        ("b.html#missing", "no such place"),
        ("#missing", "no such place"),
        ("https://nowhere", "is no address"),
    ],
)
def test_a_dead_link_is_found(tmp_path, link, says):
    (tmp_path / "a.html").write_text(f'<a href="{link}">x</a>')
    (tmp_path / "b.html").write_text('<h2 id="there">x</h2>')
    problems = site_links.check_site(tmp_path)
    assert len(problems) == (says is not None)
    assert says is None or says in problems[0]


def test_what_a_page_fetches_from_another_host_is_found(tmp_path):
    (tmp_path / "a.html").write_text('<link rel="stylesheet" href="https://fonts.example.org/a.css">')
    assert "another host" in site_links.check_site(tmp_path)[0]


@pytest.mark.parametrize("page", ["index.html", "changing-the-trainer.html", "reference/trainers.html"])
def test_a_page_looks_right_by_day_by_night_and_on_a_phone(chromium, address, page):  # noqa: F811
    backgrounds = set()
    for scheme, width in LOOKS:
        chromium.show(f"{address}/{page}", width=width, scheme=scheme)
        seen = chromium.run(
            "const heading = document.querySelector('h1').getBoundingClientRect();"
            "return {overflow: document.documentElement.scrollWidth - window.innerWidth,"
            " heading: heading.width > 0 && heading.top < window.innerHeight,"
            " background: getComputedStyle(document.body).backgroundColor,"
            " text: getComputedStyle(document.querySelector('h1')).color}"
        )
        assert seen["overflow"] <= 0, (scheme, width)
        assert seen["heading"]
        assert seen["background"] != seen["text"]
        backgrounds.add(seen["background"])
        assert chromium.errors() == []
        asked = [url for url in chromium.requests() if url.startswith(("http:", "https:"))]
        assert asked
        assert [url for url in asked if not url.startswith(address)] == []
    assert len(backgrounds) == 2


@pytest.mark.parametrize(
    "page", ["start", "how-it-works", "changing-the-trainer", "case-glue", "case-chat", "troubleshooting"]
)
def test_code_and_names_of_the_guides_fit_beside_the_two_columns(chromium, address, page):  # noqa: F811
    chromium.show(f"{address}/{page}.html", width=1280)
    wide = (
        "return [...document.querySelectorAll(arguments[0])].filter((e) => e.scrollWidth > e.clientWidth + 1)"
    )
    assert chromium.run(f"{wide}.map((e) => e.innerText)", ".md-typeset pre > code") == []
    assert chromium.run(f"{wide}.length", ".md-typeset__scrollwrap") == 0
    broken = (
        "return [...document.querySelectorAll('td:first-child code')]"
        ".map((e) => [e.innerText, e.getClientRects()])"
        ".filter(([text, boxes]) => !/[\\s\\/=.-]/.test(text) && boxes.length > 1).map(([text]) => text)"
    )
    assert chromium.run(broken) == []


def test_the_drawings_can_be_read_on_a_phone(chromium, address):  # noqa: F811
    chromium.show(f"{address}/how-it-works.html", width=390)
    drawings = "[...document.querySelectorAll('.md-typeset img[src$=\".svg\"]')]"
    shares = chromium.run(f"return {drawings}.map((e) => e.getBoundingClientRect().width / e.naturalWidth)")
    assert len(shares) == 3
    assert min(shares) > 0.75  # the smallest letters are 12 pixels high
    assert chromium.run(
        f"return {drawings}.every((e) => e.parentElement.scrollWidth > e.parentElement.clientWidth)"
    )


def test_the_search_finds_a_page(chromium, address):  # noqa: F811
    from selenium.webdriver.support.ui import WebDriverWait

    found = (
        "return [...document.querySelectorAll('*')].filter((e) => e.shadowRoot)"
        ".flatMap((e) => [...e.shadowRoot.querySelectorAll('a')].map((a) => a.href))"
    )
    chromium.show(f"{address}/index.html")
    wait = WebDriverWait(chromium.driver, 10)
    button = wait.until(lambda _: chromium.find("button.md-search__button"))
    wait.until(lambda _: button.click() or chromium.driver.switch_to.active_element.tag_name != "body")
    chromium.driver.switch_to.active_element.send_keys("save_total_limit")
    links = wait.until(lambda _: chromium.run(found))
    assert any("/checkpoints.html" in link or "/settings.html" in link for link in links)
