"""The notebooks are those of their pages, and run."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import notebooks


@pytest.mark.parametrize("name", notebooks.PAGES)
def test_a_notebook_is_that_of_its_page_and_has_no_outputs(name):
    path = notebooks.FOLDER / f"{name}.ipynb"
    assert path.read_text(encoding="utf-8") == notebooks.build_notebook(name), "run `make notebooks`"
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    assert sum(cell.cell_type == "code" for cell in notebook.cells) >= 4


def test_there_is_a_page_for_every_notebook():
    assert {path.stem for path in notebooks.FOLDER.glob("*.ipynb")} == set(notebooks.PAGES)


def test_links_of_a_notebook_lead_somewhere():
    for name in notebooks.PAGES:
        cells = nbformat.read(notebooks.FOLDER / f"{name}.ipynb", as_version=4).cells
        text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        links = [part.split(")")[0].split("#")[0] for part in text.split("](")[1:]]
        assert links
        assert [link for link in links if not (notebooks.FOLDER / link).exists()] == []


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in notebooks.PAGES[1:]]


# each starts a kernel that loads torch; tests/test_docs.py runs the same examples in its own process
@pytest.mark.parametrize("name", [notebooks.PAGES[0], *SLOW])
def test_a_notebook_runs(name, tmp_path):
    notebook = nbformat.read(notebooks.FOLDER / f"{name}.ipynb", as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("text" in output or "data" in output for output in outputs)
    assert (Path(tmp_path) / "runs").is_dir()
