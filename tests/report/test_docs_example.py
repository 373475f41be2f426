"""The example of the page about the report runs."""

from __future__ import annotations

import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "report.md"


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), flags=re.DOTALL)
    exec(example, {})
    assert "eval_loss" in capsys.readouterr().out
    assert (tmp_path / "curves.html").stat().st_size > 50_000
