"""What a hosting site reads: how to cite, how to report, and the forms of issues."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import footplate

ROOT = Path(__file__).parents[1]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
FIELDS = {"markdown", "textarea", "input", "dropdown", "checkboxes"}


def read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_citation_names_version_and_licence_of_the_package():
    citation = read(ROOT / "CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys()
    assert [author["name"] for author in citation["authors"]] == ["footplate maintainers"]
    assert citation["version"] == footplate.__version__
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'\nlicense = "{citation["license"]}"\n' in project


def test_the_newest_entry_of_the_changelog_is_that_of_the_version():
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    version, date = re.fullmatch(r"(\S+) \((\d{4}-\d\d-\d\d)\)", headings[0]).groups()
    citation = read(ROOT / "CITATION.cff")
    assert (version, date) == (footplate.__version__, str(citation["date-released"]))


def test_the_forms_are_those_of_bugs_and_wishes():
    assert [path.stem for path in FORMS] == ["bug", "config", "feature"]
    assert read(ROOT / ".github/ISSUE_TEMPLATE/config.yml") == {"blank_issues_enabled": True}


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_a_form_can_be_filled_in(name):
    form = read(ROOT / f".github/ISSUE_TEMPLATE/{name}.yml")
    assert {"name", "description", "body"} <= form.keys()
    assert {field["type"] for field in form["body"]} <= FIELDS
    asked = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in asked}) == len(asked) > 2
    for field in asked:
        assert field["attributes"]["label"]
        assert field["type"] not in ("dropdown", "checkboxes") or field["attributes"]["options"]
    assert any(field.get("validations", {}).get("required") for field in asked)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_pages_and_addresses_in_a_form_exist(path):
    text = path.read_text(encoding="utf-8")
    named = re.findall(r"\b(?:docs/[\w-]+\.md|[A-Z]+\.md)\b", text)
    assert [name for name in named if not (ROOT / name).is_file()] == []
    assert re.findall(r"https?:|mailto:|\w@\w", text) == []


def test_a_report_of_a_weakness_goes_to_no_invented_address():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "private vulnerability reporting" in text
    assert re.findall(r"https?:|mailto:|\w@\w", text) == []
