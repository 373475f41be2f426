"""What the tests of several commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from footplate.checkpoint.saves import unsaved


@pytest.fixture(autouse=True)
def forget_unsaved_runs() -> None:
    """An earlier test of this process may have left a run that could not be saved; exit codes tell of it."""
    unsaved.clear()


@pytest.fixture
def write_script(tmp_path, monkeypatch) -> Callable[[str], str]:
    """Writes a script for this library into an empty working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["footplate"])
    monkeypatch.setattr(sys, "path", ["", *sys.path])

    def write(text: str) -> str:
        (tmp_path / "train.py").write_text(text.replace("LIBRARY", "footplate"))
        return "train.py"

    return write
