"""Make the notebooks in docs/notebooks/ from pages of docs/, so that both are the same: `make notebooks`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "notebooks"
PAGES = ("start", "evaluation", "case-glue")
CODE = re.compile(r"^```python\n(.*?)^```$\n?", flags=re.DOTALL | re.MULTILINE)
INSTALL = "*Made from [the page of the documentation]({page}). It needs `pip install footplate`{more}.*"
NEEDS = {"case-glue": ' and `pip install "footplate[hf]"`'}


def build_notebook(name: str) -> str:
    """The notebook of a page: its text in cells of text, its examples in cells of code, and no outputs."""
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    text = re.sub(r"(\]\()(?!\w+:|#|/)", r"\1../", text)  # links are one folder further up
    note = INSTALL.format(page=f"../{name}.md", more=NEEDS.get(name, ""))
    title, rest = text.split("\n", 1)
    pieces = CODE.split(f"{title}\n\n{note}\n{rest}")  # text and code in turns
    cells = [
        build_cell(number, "code" if number % 2 else "markdown", piece.strip("\n"))
        for number, piece in enumerate(pieces)
        if piece.strip()
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def build_cell(number: int, kind: str, text: str) -> dict[str, Any]:
    """One cell; its id is its place, so that making it again changes nothing."""
    cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    return {**cell, "source": text.splitlines(keepends=True)}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in PAGES:
        (FOLDER / f"{name}.ipynb").write_text(build_notebook(name), encoding="utf-8")
        print(f"docs/notebooks/{name}.ipynb")
