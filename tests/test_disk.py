"""Files that anybody may have put there, and files that are whole whenever somebody reads them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from footplate import disk
from footplate.disk import (
    MAX_DEPTH,
    follow_umask,
    open_append,
    open_draft,
    open_regular,
    parse_json,
    read_bytes,
    read_json,
    read_lines,
    replacing,
)

# writes a draft, says so, and waits to be killed
WRITER = """
import sys, time
from footplate.disk import replacing
with replacing(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("ready", flush=True)
    time.sleep(100)
"""


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "socket"])
def test_only_regular_files_are_opened_and_nothing_is_waited_for(kind, tmp_path):
    path = tmp_path / "file"
    if kind == "device":
        path = Path("/dev/zero")
    elif kind == "socket":
        import socket

        socket.socket(socket.AF_UNIX).bind(str(path))
    else:
        (os.mkfifo if kind == "pipe" else os.mkdir)(path)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match=r"a file was expected|directory|No such device"):
        open_regular(path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_is_read_up_to_its_limit(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert read_bytes(tmp_path / "file", 5) == b"12345"
    with pytest.raises(ValueError, match="more than 4 bytes"):
        read_bytes(tmp_path / "file", 4)
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match=r"sparse is damaged: it has more than 1000 bytes"):
        read_json(tmp_path / "sparse", 1000)


def test_a_file_of_the_kernel_that_grows_while_it_is_read_is_cut_off():
    with pytest.raises(ValueError, match="more than 10 bytes"):
        read_bytes("/proc/self/status", 10)  # its size is 0, and it has more


@pytest.mark.parametrize("pair", [b"[]", b'{"a":1}'])
def test_json_is_read_to_a_depth(pair):
    opening, closing = (b"[", b"]") if pair == b"[]" else (b'{"a":', b"}")
    parse_json(opening * MAX_DEPTH + b"1" + closing * MAX_DEPTH)
    for depth in (MAX_DEPTH + 1, 500, 100_000):
        with pytest.raises(ValueError, match="nested"):
            parse_json(opening * depth + b"1" + closing * depth)
    parse_json(b"[" + b"[]," * 1000 + b"[]]")


def test_a_key_that_is_there_twice_is_refused_where_it_matters(tmp_path):
    (tmp_path / "file").write_text('{"a": {"b": 1, "b": 2}}')
    with pytest.raises(ValueError, match=r"file is damaged: it has 'b' twice"):
        read_json(tmp_path / "file", 1000)


def test_lines_beyond_the_limit_are_left_out(tmp_path):
    (tmp_path / "file").write_bytes(b"ab\n" + b"x" * 100 + b"\ncd\n" + b"y" * 5 + b"\nend")
    with open_regular(tmp_path / "file") as file:
        assert list(read_lines(file, 5)) == [b"ab\n", b"cd\n", b"end"]


def test_a_draft_is_a_new_file_whatever_was_there(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "draft").symlink_to(tmp_path / "precious")
    os.close(open_draft(tmp_path / "draft"))
    assert not (tmp_path / "draft").is_symlink()
    assert (tmp_path / "precious").read_text() == "mine"


def test_an_error_leaves_the_old_file_and_no_draft(tmp_path):
    (tmp_path / "file").write_bytes(b"old")

    def write():
        with replacing(tmp_path / "file") as file:
            file.write(b"new")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"old"}


def start_writer(path):
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
    assert writer.stdout.readline() == b"ready\n"
    return writer


def drafts(folder):
    return [path.name for path in folder.iterdir() if path.name.endswith(".new")]


def test_the_draft_of_a_killed_process_is_removed_and_that_of_a_living_one_is_not(tmp_path, monkeypatch):
    killed, living = start_writer(tmp_path / "report.html"), start_writer(tmp_path / "report.html")
    try:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert len(drafts(tmp_path)) == 2
        with replacing(tmp_path / "report.html") as file:
            file.write(b"whole")
        assert [name.split("-")[1] for name in drafts(tmp_path)] == [str(living.pid)]
    finally:
        living.kill()
        living.wait()
    monkeypatch.setattr(disk, "_swept", set())  # the next process
    with replacing(tmp_path / "report.html") as file:
        file.write(b"again")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_drafts_of_other_machines_and_other_versions_go_when_they_are_old(tmp_path):
    names = [".report.html.elsewhere-1-2.new", ".report.html.123-456.new"]
    for name in [*names, ".other.html.123-456.new"]:
        (tmp_path / name).write_text("half")
    with replacing(tmp_path / "report.html") as file:
        file.write(b"1")
    assert len(drafts(tmp_path)) == 3
    for name in drafts(tmp_path):
        os.utime(tmp_path / name, (time.time() - 7200,) * 2)
    disk._swept.clear()
    with replacing(tmp_path / "report.html") as file:
        file.write(b"2")
    assert drafts(tmp_path) == [".other.html.123-456.new"]


def test_a_draft_of_a_process_before_with_the_same_number_is_removed(tmp_path):
    name = f".file.{disk._host_name()}-{os.getpid()}-{threading.get_ident() + 1}.new"
    (tmp_path / name).write_text("half")
    os.utime(tmp_path / name, (disk._STARTED - 5,) * 2)
    with replacing(tmp_path / "file") as file:
        file.write(b"1")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_appending_makes_a_file_with_the_rights_that_the_umask_leaves(tmp_path):
    before = os.umask(0o027)
    try:
        os.close(open_append(tmp_path / "file"))
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_rights_that_somebody_chose_stay(tmp_path):
    for name, rights in {"private": 0o600, "readable": 0o640, "secret": 0o400}.items():
        (tmp_path / name).write_text("x")
        (tmp_path / name).chmod(rights)
    before = os.umask(0o022)
    try:
        follow_umask(sorted(tmp_path.iterdir()))
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"private": 0o644, "readable": 0o640, "secret": 0o400}
