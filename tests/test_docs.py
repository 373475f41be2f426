"""The examples in the documents run, and the files they name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def code_blocks(document: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", document.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_complete_run_of_the_readme_learns_the_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(code_blocks(ROOT / "README.md")[0], names)
    assert (tmp_path / "runs" / "line" / "model.safetensors").is_file()
    assert names["trainer"].evaluate()["eval_mean_error"] < 0.05
    assert "eval_mean_error" in capsys.readouterr().out


def test_the_two_import_lines_of_the_readme_import():
    for line in code_blocks(ROOT / "README.md")[1].splitlines():
        exec(line, {})


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document):
    links = re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8"))
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_the_file_tree_of_the_readme_is_there():
    tree = (ROOT / "README.md").read_text(encoding="utf-8").split("## The files")[1]
    named = set(re.findall(r"\b([a-z_]+\.py)\b", tree))
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").glob("*.py")]
    assert named - {path.name for path in sources} == set()
    folders = set(re.findall(r"^  ([a-z]+)/", tree, flags=re.MULTILINE))
    packages = {path.parent.name for path in (ROOT / "src" / "footplate").glob("*/__init__.py")}
    assert folders == packages
