"""What a lock tells of the run that took it, without touching it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from footplate.checkpoint.life import find_life
from footplate.checkpoint.lock import LOCK_NAME, own_folder
from footplate.checkpoint.process import this_process

OLD = 7200.0


def write_lock(folder, age=0.0, **changes):
    """A lock as another process would have left it."""
    path = folder / LOCK_NAME
    path.write_text(json.dumps({**this_process()._asdict(), "began": time.time() - age, **changes}))
    os.utime(path, (time.time() - age,) * 2)


def ended_process():
    """The number and the start of a process that has ended."""
    program = "from footplate.checkpoint.process import this_process as t; print(*t()[3:])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    pid, started = done.stdout.split()
    return {"pid": int(pid), "started": started}


def test_without_a_lock_nobody_is_there(tmp_path):
    assert find_life(tmp_path) is None
    assert find_life(tmp_path / "nowhere") is None


def test_the_process_that_holds_a_folder_is_alive_and_its_lock_stays_as_it_was(tmp_path):
    with own_folder(str(tmp_path)):
        before = (tmp_path / LOCK_NAME).read_bytes(), (tmp_path / LOCK_NAME).stat().st_ino
        life = find_life(tmp_path)
        assert (life.is_alive, life.pid, life.host) == (True, os.getpid(), None)
        assert abs(life.last_sign - time.time()) < 10
        assert ((tmp_path / LOCK_NAME).read_bytes(), (tmp_path / LOCK_NAME).stat().st_ino) == before
    assert find_life(tmp_path) is None


def test_a_killed_process_is_told_from_a_living_one(tmp_path):
    write_lock(tmp_path, **ended_process())
    assert find_life(tmp_path).is_alive is False  # even though its last sign is of this moment


@pytest.mark.parametrize(("age", "is_alive"), [(1.0, True), (OLD, None)])
def test_a_process_of_another_machine_is_judged_by_its_last_sign(tmp_path, age, is_alive):
    write_lock(tmp_path, age, host="elsewhere", boot="another", pid=7)
    life = find_life(tmp_path)
    assert (life.is_alive, life.pid, life.host) == (is_alive, 7, "elsewhere")


def test_a_run_of_before_the_last_start_of_this_machine_is_gone(tmp_path):
    write_lock(tmp_path, OLD, boot="before")
    assert find_life(tmp_path).is_alive is False


@pytest.mark.parametrize("content", [b"", b"{", b'{"pid": "x"}', b"\xff" * 10_000])
def test_a_lock_that_cannot_be_read_is_judged_by_its_age(tmp_path, content):
    path = tmp_path / LOCK_NAME
    path.write_bytes(content)
    assert find_life(tmp_path).is_alive is True
    os.utime(path, (time.time() - OLD,) * 2)
    assert find_life(tmp_path)[:3] == (False, None, None)
