"""The README in three languages says the same, and its figures are those of the benchmarks."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ORIGINAL = (ROOT / "README.md").read_text(encoding="utf-8")
TRANSLATIONS = {"README.ko.md": r"[가-힣]", "README.zh.md": r"[一-鿿]"}
BLOCK = re.compile(r"^```.*?^```$", flags=re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`[^`]+`")
LINK = re.compile(r'(?:\]\(|src="|href=")([^)"]+)[)"]')
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def find_content(text: str) -> dict[str, object]:
    """What a translation keeps: headings, blocks, tables and figures in bold in their order."""
    prose = BLOCK.sub("", text)
    words = LINK.sub("", SPAN.sub("", prose))  # numbers in names and addresses belong to these
    return {
        "headings": re.findall(r"^#+(?= )", prose, flags=re.MULTILINE),
        "code blocks": BLOCK.findall(text),
        "table rows": [line.count("|") for line in SPAN.sub("", prose).splitlines() if line.startswith("|")],
        "list entries": len(re.findall(r"^- ", prose, flags=re.MULTILINE)),
        "bold": re.findall(r"\*\*(.+?)\*\*", prose),
        "code": Counter(SPAN.findall(prose)),
        "links": Counter(LINK.findall(prose)),
        "numbers": Counter(NUMBER.findall(words)),
    }


def find_differences(translation: str) -> list[str]:
    """What a translation of the README has too much, too little or elsewhere."""
    here, there = find_content(ORIGINAL), find_content(translation)
    return [f"{kind}: {here[kind]} and {there[kind]}" for kind in here if here[kind] != there[kind]]


def find_paragraphs_without(script: str, text: str) -> list[str]:
    """Paragraphs, list entries and rows with a sentence in Latin letters, and not one letter of a script."""
    parts = re.split(r"\n\n+|\n(?=[-|#])", BLOCK.sub("", text))
    words = [LINK.sub("", SPAN.sub("", part)) for part in parts]
    return [part for part in words if len(re.findall(r"[a-z]{2,}", part)) > 3 and not re.search(script, part)]


@pytest.mark.parametrize("name", TRANSLATIONS)
def test_a_translation_has_the_content_of_the_original(name):
    assert find_differences((ROOT / name).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", TRANSLATIONS)
def test_a_translation_leaves_no_paragraph_untranslated(name):
    script = TRANSLATIONS[name]
    assert find_paragraphs_without(script, (ROOT / name).read_text(encoding="utf-8")) == []
    assert len(find_paragraphs_without(script, ORIGINAL)) > 14


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("## Limits", "### Limits", "headings"),
        ("make demo ", "make dome ", "code blocks"),
        ("pip install torch", "pip install jax", "code blocks"),
        ("| 2.06 |", "| 2.07 |", "numbers"),
        ("**0.89**", "0.89", "bold"),
        ("docs/scale.md#what-was-not-tried", "docs/scale.md", "links"),
        ("docs/images/report.png", "docs/images/phone.png", "links"),
        ("small, fast", "fast, small", None),
        ("`debug`", "", "code"),
        ("- It is young", "It is young", "list entries"),
    ],
)
def test_a_difference_between_two_readmes_is_found(before, after, kind):
    kinds = [difference.partition(":")[0] for difference in find_differences(ORIGINAL.replace(before, after))]
    assert kinds == [] if kind is None else kind in kinds


def read_row(text: str, begin: str) -> list[str]:
    """The cells of the row of a table that begins so."""
    (row,) = re.findall(rf"^\| {re.escape(begin)}.*$", text, flags=re.MULTILINE)
    return [cell.strip().strip("*") for cell in row.strip("| ").split(" | ")]


def test_the_figures_are_those_of_the_benchmarks():
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    killed = re.search(r"footplate failed (\d+) times\s+of (\d+), transformers (\d+) times of (\d+)", page)
    assert read_row(ORIGINAL, "killed by SIGKILL")[1:] == [
        "{} / {}".format(*pair) for pair in (killed.groups()[:2], killed.groups()[2:])
    ]
    for claim, work in {
        "one update of": "one update, MLP",
        "evaluation of 20,000": "evaluation, 20,000",
    }.items():
        compared, transformers = read_row(page, work)[3:5]
        assert read_row(ORIGINAL, claim)[1:] == [compared.split(" ")[0], transformers]
    longer = float(read_row(ORIGINAL, "evaluation of")[1]) - 1
    assert f"An evaluation takes about {longer:.0%} longer".replace("%", " %") in ORIGINAL
    compared, transformers = read_row(page, "a log at every update, above")[3:5]
    log = compared.split(" (")[0]
    assert f"A log costs {log} (transformers: {transformers})" in ORIGINAL
    assert "317 ms after 100,000" in page
    assert "torch 2.13.0, transformers 5.23.0" in page
