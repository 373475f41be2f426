"""Whether a process still runs, told from what a file says about it."""

import os
import subprocess
import sys

import pytest

from footplate.checkpoint.process import Process, find_tagged, this_process


def started(code="import time; time.sleep(60)"):
    return subprocess.Popen([sys.executable, "-S", "-c", code])


def describe(pid):
    return find_tagged(this_process()._replace(pid=pid, started=read_start(pid)).tag)


def read_start(pid):
    return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[19]


def test_this_process_is_alive():
    assert this_process().is_alive() is True
    assert this_process().is_on_this_machine()
    assert find_tagged(this_process().tag) == this_process()


def test_a_killed_process_is_not_alive_even_before_its_parent_notices():
    child = started()
    process = describe(child.pid)
    assert process.is_alive() is True
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie
    assert process.is_alive() is False
    child.wait()
    assert process.is_alive() is False


def test_a_number_that_another_process_has_now_is_not_the_process():
    assert this_process()._replace(started="1").is_alive() is False


def test_a_forked_process_is_another_one():
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, this_process().tag.encode())
        os._exit(0)
    os.waitpid(child, 0)
    found = find_tagged(os.read(reader, 100).decode())
    assert found.pid == child
    assert found.is_alive() is False


@pytest.mark.parametrize("name", ["host", "boot", "namespace"])
def test_nothing_is_known_of_a_process_elsewhere(name):
    elsewhere = this_process()._replace(**{name: "another"})
    assert elsewhere.is_alive() is None
    assert find_tagged(elsewhere.tag) is None
    assert elsewhere.is_on_this_machine() is (name != "boot")


def test_where_the_system_tells_nothing_a_number_in_use_proves_nothing(monkeypatch):
    child = started("pass")
    child.wait()
    here = Process("here", "", "", os.getpid(), "")
    monkeypatch.setattr("footplate.checkpoint.process.this_process", lambda: here)
    assert here.is_alive() is None
    assert here._replace(pid=child.pid).is_alive() is False
    assert not here._replace(host="there").is_on_this_machine()


@pytest.mark.parametrize("tag", ["", "x", "a-b-c", "-", "00000000-1-2", "1-\u0663-4"])
def test_a_tag_that_nobody_wrote_is_of_no_process(tag):
    assert find_tagged(tag) is None
