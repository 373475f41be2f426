"""The command line as a whole."""

from __future__ import annotations

import subprocess
import sys

import pytest

import footplate
from footplate.cli.main import main


def test_it_runs_as_a_module_and_lists_its_commands():
    done = subprocess.run(
        [sys.executable, "-m", "footplate", "--help"], capture_output=True, text=True, check=True
    )
    assert "checkpoints" in done.stdout
    assert "verify-resume" in done.stdout


def test_it_tells_its_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"footplate {footplate.__version__}\n"


@pytest.mark.parametrize("words", [[], ["unknown"], ["checkpoints"], ["verify-resume"]], ids=str)
def test_a_wrong_use_is_refused(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: footplate" in capsys.readouterr().err
