"""The command line as a whole."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import footplate
import tiny
from footplate.cli.main import COMMANDS, build_parser, main


def test_it_runs_as_a_module_and_lists_its_commands():
    done = subprocess.run(
        [sys.executable, "-m", "footplate", "--help"], capture_output=True, text=True, check=True
    )
    assert "checkpoints" in done.stdout
    assert "verify-resume" in done.stdout


QUICK = [
    ["--version"],
    ["--help"],
    ["report", "RUN"],
    ["checkpoints", "RUN"],
    ["runs", "RUN"],
    ["report", "--help"],
]


@pytest.mark.parametrize("words", QUICK, ids=" ".join)
def test_it_starts_without_torch_and_in_half_a_second_of_work(words, run_folder):
    words = [str(run_folder) if word == "RUN" else word for word in words]
    program = (
        "import os, sys\n"
        "from footplate.cli.main import main\n"
        "try:\n    code = main(sys.argv[1:])\n"
        "except SystemExit as ended:\n    code = ended.code\n"
        "print(code, 'torch' in sys.modules, sum(os.times()[:2]), file=sys.stderr)\n"
    )
    seconds = []
    for _ in range(3):  # the first start may have to read the files from the disk
        done = subprocess.run(
            [sys.executable, "-c", program, *words], capture_output=True, text=True, check=True
        )
        code, has_torch, spent = done.stderr.split()
        assert (code, has_torch) == ("0", "False")
        seconds.append(float(spent))
    assert min(seconds) < 0.5


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    data = tiny.regression_data(16)
    tiny.build_trainer(
        folder, tiny.Regression(), data, max_steps=2, save_strategy="steps", save_steps=1
    ).train()
    return folder


def test_every_command_is_listed_and_has_a_parser():
    for name in COMMANDS:
        assert name in build_parser([]).format_help()
        assert build_parser([name]).format_help() == build_parser([name, "--help"]).format_help()


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


@pytest.mark.parametrize("is_foreign", [False, True])
def test_an_error_of_other_code_keeps_its_traceback(is_foreign, monkeypatch, capsys):
    def refuse(options):
        raise ValueError("no such thing")

    if not is_foreign:  # as if it stood in one of our files
        refuse = type(refuse)(refuse.__code__, {**refuse.__globals__, "__name__": "footplate.tasks.qa"})
    monkeypatch.setattr("footplate.cli.checkpoints.run", refuse)
    assert main(["checkpoints", "somewhere"]) == (1 if is_foreign else 2)
    said = capsys.readouterr().err
    assert said.endswith("footplate: no such thing\n")
    assert ("Traceback" in said) == is_foreign


def test_what_is_not_in_this_version_is_said_in_one_line(monkeypatch, capsys):
    def refuse(options):
        raise NotImplementedError("not in this version")

    monkeypatch.setattr("footplate.cli.checkpoints.run", refuse)
    assert main(["checkpoints", "somewhere"]) == 2
    assert capsys.readouterr().err == "footplate: not in this version\n"


def test_a_reader_that_has_seen_enough_is_no_error():
    """As in `footplate tasks | head -1`, with a reader that is gone before the first line."""
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(
        [sys.executable, "-m", "footplate", "tasks"], stdout=writes, stderr=subprocess.PIPE, text=True
    )
    os.close(writes)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_connection_that_breaks_in_a_run_is_said(monkeypatch, capsys):
    """Such as that of a tracker: somebody still reads the output."""

    def lose(options):
        raise BrokenPipeError("the service hung up")

    monkeypatch.setattr("footplate.cli.checkpoints.run", lose)
    assert main(["checkpoints", "somewhere"]) == 2
    assert capsys.readouterr().err == "footplate: the service hung up\n"
