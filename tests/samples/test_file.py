"""Sample files that a run finds in its folder and did not write."""

from __future__ import annotations

import json
import os

import pytest

from footplate.samples.file import SampleFile

GOOD = b'{"step": 1, "source": "eval", "prediction": "a"}\n'
HOSTILE = [
    b"[" * 200_000 + b"\n",
    b'{"step": 1, "a": ' + b"[" * 500 + b"]" * 500 + b"}\n",
    b'{"step": "1"}\n',
    b'{"step": 1e999}\n',
    b"\xff\xfe\n",
    b"\0" * 1000 + b"\n",
]


@pytest.mark.parametrize("line", HOSTILE)
def test_lines_that_are_no_samples_are_left_out(tmp_path, line):
    file = SampleFile(tmp_path)
    file.path.write_bytes(GOOD + line + GOOD)
    file.begin_run(2)
    assert file.path.read_bytes() == GOOD * 2
    assert [path.name for path in tmp_path.iterdir()] == ["samples.jsonl"]


def test_a_line_without_end_does_not_fill_the_memory(tmp_path):
    file = SampleFile(tmp_path)
    with open(file.path, "wb") as sparse:
        sparse.write(GOOD)
        sparse.truncate(300 << 20)
    file.begin_run(2)
    assert file.path.read_bytes() == GOOD


@pytest.mark.parametrize("kind", ["pipe", "folder"])
@pytest.mark.parametrize("step", [0, 2])
def test_what_is_no_file_is_set_aside_and_rows_are_kept(tmp_path, caplog, kind, step):
    file = SampleFile(tmp_path)
    (os.mkfifo if kind == "pipe" else os.mkdir)(file.path)
    file.begin_run(step)
    file.append(3, "eval", [{"prediction": 1}])
    assert json.loads(file.path.read_text()) == {"step": 3, "source": "eval", "prediction": 1}
    assert caplog.text.count("samples.jsonl was not a file. It is now ") == 1


def test_a_pipe_that_appears_during_the_run_does_not_hold_it_up(tmp_path):
    file = SampleFile(tmp_path)
    file.begin_run(0)
    os.mkfifo(file.path)
    file.append(3, "eval", [{"prediction": 1}])
    assert file.path.read_text().count("\n") == 1


def test_a_device_is_warned_of_and_not_read(tmp_path, caplog):
    file = SampleFile(tmp_path)
    file.path.symlink_to("/dev/zero")
    file.begin_run(2)
    assert "a file was expected" in caplog.text
