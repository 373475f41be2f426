"""`footplate drive`: a script runs as Python would run it, on footplate."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from footplate.cli.main import main

SCRIPT = """
import sys
from transformers import Trainer
from helper import word  # beside the script
if __name__ == "__main__":
    print(Trainer.__module__, word, sys.argv[1:], __file__.endswith("train.py"))
    if "--fail" in sys.argv:
        raise ValueError("broken on purpose")
    if "--exit" in sys.argv:
        sys.exit(7)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script with a module beside it."""
    (tmp_path / "helper.py").write_text("word = 'beside'\n", encoding="utf-8")
    path = tmp_path / "train.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


def drive(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    command = [sys.executable, "-m", "footplate", "drive", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def test_a_script_gets_its_arguments_and_its_folder_and_footplates_trainer(script):
    done = drive(str(script), "--check", "-m", "--lr", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "footplate.trainer.trainer beside ['--check', '-m', '--lr', '1'] True"
    ]
    assert done.stderr.count("footplate's now") == 1


@pytest.mark.slow
def test_an_error_of_the_script_is_shown_as_python_shows_it(script):
    done = drive(str(script), "--fail")
    assert done.returncode == 1
    trace = done.stderr[done.stderr.index("Traceback") :]
    assert trace.splitlines()[1].startswith(f'  File "{script}", line 8')
    assert trace.splitlines()[-1] == "ValueError: broken on purpose"
    assert "runpy" not in trace


@pytest.mark.slow
def test_a_script_ends_with_its_own_code(script):
    assert drive(str(script), "--exit").returncode == 7


@pytest.mark.slow
def test_a_module_is_run_as_python_dash_m_runs_it(script):
    done = drive("-m", "train", "--lr", "1", cwd=script.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["footplate.trainer.trainer beside ['--lr', '1'] True"]


def test_a_script_that_does_not_exist_is_refused_in_a_line(capsys):
    assert main(["drive", "not_there.py"]) == 2
    assert "'not_there.py' does not exist" in capsys.readouterr().err
