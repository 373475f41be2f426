"""A folder has one run at a time, and a run that is gone keeps nobody out."""

import contextlib
import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from footplate.checkpoint import lock as locks
from footplate.checkpoint.lock import LOCK_NAME, FolderInUse, FolderLock, Record, own_folder, take
from footplate.checkpoint.process import this_process


class Child:
    """A forked process that does `work`, says so, and then waits until it is killed or told to go on."""

    def __init__(self, work):
        self.said, writer = os.pipe()
        waiting, self.go = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(self.go)
                work(lambda text: os.write(writer, text.encode()), lambda: os.read(waiting, 1))
                code = 0
            finally:
                os._exit(code)
        os.close(writer)
        os.close(waiting)

    def hear(self):
        return os.read(self.said, 1000).decode()

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)

    def wait(self):
        with contextlib.suppress(OSError):
            os.close(self.go)
        return os.waitpid(self.pid, 0)[1]


def holding(folder):
    def work(say, wait):
        with own_folder(str(folder)):
            say("held")
            wait()

    child = Child(work)
    assert child.hear() == "held"
    return child


def tried_in_a_child(folder):
    def work(say, wait):
        try:
            with own_folder(str(folder)):
                say("held")
        except FolderInUse as error:
            say(str(error))

    child = Child(work)
    answer = child.hear()
    assert child.wait() == 0
    return answer


def lock_file(folder):
    return os.path.join(folder, LOCK_NAME)


def locked_elsewhere(folder, seconds_ago=0.0, **place):
    """The file of a lock that a process of another machine took."""
    process = this_process()._replace(**{"host": "node7", "boot": "another", "pid": 4321, **place})
    with open(lock_file(folder), "wb") as file:
        file.write(Record(process, time.time() - 7300).to_bytes())
    changed = time.time() - seconds_ago
    os.utime(lock_file(folder), (changed, changed))


@pytest.fixture
def fast(monkeypatch):
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(locks, "PATIENCE_SECONDS", 0.3)


def wait_until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# ---- two processes ----


def test_a_second_process_is_refused_with_who_has_the_folder_and_what_to_do(tmp_path):
    child = holding(tmp_path)
    before = sorted(os.listdir(tmp_path))
    start = time.monotonic()
    with pytest.raises(FolderInUse) as refused, own_folder(str(tmp_path)):
        pass
    assert time.monotonic() - start < locks.PATIENCE_SECONDS / 2  # it did not watch
    host = this_process().host
    text = str(refused.value)
    assert f"{tmp_path} is in use by process {child.pid} on {host}, which began 0 seconds ago" in text
    assert "another output_dir" in text
    assert lock_file(tmp_path) in text
    assert sorted(os.listdir(tmp_path)) == before
    assert child.wait() == 0
    with own_folder(str(tmp_path)):
        pass
    assert os.listdir(tmp_path) == []


def test_a_killed_process_keeps_nobody_out_not_even_before_its_parent_notices(tmp_path):
    child = holding(tmp_path)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert os.path.exists(lock_file(tmp_path))
    start = time.monotonic()
    with own_folder(str(tmp_path)):
        assert json.loads(Path(lock_file(tmp_path)).read_text())["pid"] == os.getpid()
    assert time.monotonic() - start < locks.PATIENCE_SECONDS / 2  # it did not watch
    child.wait()


def test_workers_that_outlive_a_killed_run_keep_nobody_out(tmp_path):
    def work(say, wait):
        with own_folder(str(tmp_path)):
            worker = os.fork()
            if worker == 0:
                time.sleep(60)
                os._exit(0)
            say(str(worker))
            wait()

    child = Child(work)
    worker = int(child.hear())
    child.kill()
    child.wait()
    os.kill(worker, 0)  # it lives
    with own_folder(str(tmp_path)):
        pass
    os.kill(worker, signal.SIGKILL)


def test_a_forked_process_is_another_one_and_does_not_release_its_parents_lock(tmp_path):
    with own_folder(str(tmp_path)) as lock:
        assert "is in use by process" in tried_in_a_child(tmp_path)

        def leave(say, wait):
            lock.release()
            say("left")

        child = Child(leave)
        assert child.hear() == "left"
        child.wait()
        assert os.path.exists(lock_file(tmp_path))
        assert "is in use by process" in tried_in_a_child(tmp_path)
    assert tried_in_a_child(tmp_path) == "held"


@pytest.mark.parametrize("round_number", range(5))
def test_of_many_that_start_at_once_exactly_one_gets_the_folder(round_number, tmp_path):
    start = time.monotonic() + 0.2

    def work(say, wait):
        time.sleep(max(0, start - time.monotonic()))
        try:
            with own_folder(str(tmp_path / "run")):
                say("held")
                wait()
        except FolderInUse:
            say("refused")

    children = [Child(work) for _ in range(8)]
    answers = sorted(child.hear() for child in children)
    assert answers == ["held", *["refused"] * 7]
    for child in children:
        assert child.wait() == 0
    assert os.listdir(tmp_path / "run") == []


# ---- one process ----


def test_a_process_may_take_the_same_folder_again_and_again(tmp_path):
    for _ in range(3):
        with own_folder(str(tmp_path)):
            assert os.path.exists(lock_file(tmp_path))
        assert not os.path.exists(lock_file(tmp_path))


def test_one_trainer_inside_another_shares_the_lock_and_is_warned_of(tmp_path, caplog):
    (tmp_path / "link").symlink_to(tmp_path)
    with own_folder(str(tmp_path)):
        with own_folder(str(tmp_path / "link")):
            pass
        assert "Two trainers of this process write into" in caplog.text
        assert "is in use by process" in tried_in_a_child(tmp_path)
    assert not os.path.exists(lock_file(tmp_path))


def test_an_error_lets_the_next_run_in(tmp_path):
    with pytest.raises(KeyboardInterrupt), own_folder(str(tmp_path)):
        raise KeyboardInterrupt
    assert tried_in_a_child(tmp_path) == "held"


def test_a_program_that_started_itself_anew_in_the_same_process_is_let_in(tmp_path):
    with open(lock_file(tmp_path), "wb") as file:
        file.write(Record(this_process(), time.time()).to_bytes())
    with own_folder(str(tmp_path)):
        pass


def test_a_number_that_another_process_has_by_now_keeps_nobody_out(tmp_path):
    with open(lock_file(tmp_path), "wb") as file:
        file.write(Record(this_process()._replace(pid=1, started="1"), time.time()).to_bytes())
    with own_folder(str(tmp_path)):
        pass


# ---- signs of life ----


@pytest.mark.usefixtures("fast")
def test_a_lock_dropped_by_a_copy_of_the_folder_is_taken_back(tmp_path):
    with own_folder(str(tmp_path / "run")):
        shutil.copytree(tmp_path / "run", tmp_path / "copy")  # opens and closes the file

        def is_locked():
            def work(say, wait):
                descriptor = os.open(lock_file(tmp_path / "run"), os.O_RDWR)
                say(str(locks._lock(descriptor)))

            child = Child(work)
            answer = child.hear()
            child.wait()
            return answer == "False"

        # meanwhile what the file says keeps others out
        assert "is in use by process" in tried_in_a_child(tmp_path / "run")
        wait_until(is_locked)


@pytest.mark.usefixtures("fast")
def test_a_file_that_was_deleted_is_made_again(tmp_path):
    with own_folder(str(tmp_path)):
        os.unlink(lock_file(tmp_path))
        wait_until(lambda: os.path.exists(lock_file(tmp_path)))
        assert "is in use by process" in tried_in_a_child(tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("fast")
def test_a_folder_that_was_removed_is_locked_again_when_it_is_back(tmp_path):
    with own_folder(str(tmp_path / "run")):
        shutil.rmtree(tmp_path / "run")
        time.sleep(0.1)
        assert not (tmp_path / "run").exists()
        (tmp_path / "run").mkdir()
        wait_until(lambda: os.path.exists(lock_file(tmp_path / "run")))


@pytest.mark.usefixtures("fast")
def test_a_run_whose_folder_was_taken_over_does_not_write_any_more(tmp_path, caplog):
    with own_folder(str(tmp_path)) as lock:
        lock.check()
        os.unlink(lock_file(tmp_path))
        locked_elsewhere(tmp_path)
        wait_until(lambda: not lock.is_held)
        with pytest.raises(FolderInUse, match="taken over by process 4321 on node7"):
            lock.check()
    assert "is written by another run now" in caplog.text
    assert os.path.exists(lock_file(tmp_path))  # it is the other one's


def test_a_lock_ends_its_thread(tmp_path):
    lock = FolderLock(str(tmp_path))
    thread = lock._thread
    assert thread.is_alive()
    lock.release()
    assert not thread.is_alive()


# ---- another machine ----


@pytest.mark.usefixtures("fast")
def test_a_run_on_another_machine_that_gives_signs_of_life_keeps_others_out(tmp_path):
    locked_elsewhere(tmp_path)

    def beat(say, wait):
        say("beating")
        while True:
            os.utime(lock_file(tmp_path))
            time.sleep(0.02)

    child = Child(beat)
    assert child.hear() == "beating"
    with pytest.raises(FolderInUse, match="process 4321 on node7, which began 2 hours ago"):
        take(lock_file(tmp_path), Record(this_process(), time.time()))
    child.kill()
    child.wait()


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("skew", [0, 600, -600])
def test_a_silent_one_is_watched_for_a_while_whatever_its_clock_says(skew, tmp_path, caplog):
    locked_elsewhere(tmp_path, seconds_ago=skew)
    start = time.monotonic()
    with own_folder(str(tmp_path)):
        assert time.monotonic() - start >= 0.3
        assert "watching for" in caplog.text
        assert "is in use by process" in tried_in_a_child(tmp_path)


def test_a_lock_forgotten_long_ago_is_not_watched(tmp_path):
    locked_elsewhere(tmp_path, seconds_ago=7200)
    start = time.monotonic()
    with own_folder(str(tmp_path)):
        assert time.monotonic() - start < locks.PATIENCE_SECONDS / 2  # it did not watch


def test_a_lock_from_before_this_machine_started_is_not_watched(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "_uptime", lambda: 60.0)
    locked_elsewhere(tmp_path, seconds_ago=90, host=this_process().host)
    start = time.monotonic()
    with own_folder(str(tmp_path)):
        assert time.monotonic() - start < locks.PATIENCE_SECONDS / 2  # it did not watch


def test_in_another_container_of_this_machine_the_kernels_lock_decides(tmp_path):
    here = this_process()
    locked_elsewhere(tmp_path, boot=here.boot, namespace="another", host="container")
    start = time.monotonic()
    with own_folder(str(tmp_path)):
        assert time.monotonic() - start < locks.PATIENCE_SECONDS / 2  # it did not watch


# ---- where less works ----


@pytest.mark.usefixtures("fast")
def test_without_the_kernels_locks_what_the_file_says_decides(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "fcntl", None)
    child = holding(tmp_path)
    with pytest.raises(FolderInUse, match=f"process {child.pid} on"), own_folder(str(tmp_path)):
        pass
    child.kill()
    child.wait()
    with own_folder(str(tmp_path)):
        pass
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_locked_is_warned_of_and_used(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with own_folder(str(tmp_path / "file")) as lock:
        assert not lock.is_held
        lock.check()
    assert "cannot be locked against a second run" in caplog.text


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 9, b"{}", b"[" * 9999, b'{"pid": "1"}', b'{"host": 1, "pid": 2, "began": "x"}']
)
def test_a_damaged_file_keeps_nobody_out(content, tmp_path):
    with open(lock_file(tmp_path), "wb") as file:
        file.write(content)
    with own_folder(str(tmp_path)):
        assert "is in use by process" in tried_in_a_child(tmp_path)


def test_a_pipe_or_a_link_in_its_place_is_neither_waited_for_nor_followed(tmp_path):
    (tmp_path / "pipe").mkdir()
    (tmp_path / "link").mkdir()
    os.mkfifo(lock_file(tmp_path / "pipe"))
    os.symlink(tmp_path / "elsewhere", lock_file(tmp_path / "link"))
    for name in ("pipe", "link"):
        with own_folder(str(tmp_path / name)) as lock:
            assert not lock.is_held
    assert not (tmp_path / "elsewhere").exists()
