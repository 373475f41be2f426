"""Jobs run beside the caller, one at a time; none is lost at exit, and no error is lost at all."""

import gc
import os
import subprocess
import sys
import threading
import time
import weakref

import pytest

from footplate.checkpoint import writer
from footplate.checkpoint.writer import BackgroundWriter

BOTH = pytest.mark.parametrize("write_in_place", [False, True], ids=["in the background", "in place"])


def fail(error):
    def job():
        raise error

    return job


def test_a_job_runs_on_another_thread_while_the_caller_goes_on():
    background, may_end, threads = BackgroundWriter(), threading.Event(), []

    def job():
        assert may_end.wait(10)
        threads.append(threading.current_thread())

    background.submit(job, "writing")
    assert background.poll() is None
    assert threads == []
    may_end.set()
    assert background.join() is None
    assert threads[0] is not threading.current_thread()
    assert threads[0].name == "writing"


def test_in_place_the_job_runs_in_the_caller():
    background, threads = BackgroundWriter(write_in_place=True), []
    background.submit(lambda: threads.append(threading.current_thread()), "writing")
    assert threads == [threading.current_thread()]
    assert background.join() is None


NICENESS = """
import os, threading, time
import torch
from footplate.checkpoint.writer import BackgroundWriter

def read_niceness(thread):
    "The priority of a thread of this process, as the system tells it."
    with open(f"/proc/self/task/{thread}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[16])

torch.set_num_threads(2)
found, end, started = [], threading.Event(), []

def job():
    torch.ones(10_000_000).add_(1)  # starts a thread that computes
    found.append(threading.get_native_id())
    found.append(read_niceness(found[0]))
    if STARTS_THREAD:
        started.append(threading.Thread(target=end.wait))
        started[0].start()

background = BackgroundWriter()
background.submit(job, "writing")
assert background.join() is None
while os.path.exists(f"/proc/self/task/{found[0]}"):  # the system ends it a moment after Python has
    time.sleep(0.001)
torch.ones(10_000_000).add_(1)
others = [read_niceness(thread) for thread in os.listdir("/proc/self/task")]
end.set()
print(found[1] - os.getpriority(os.PRIO_PROCESS, 0), *sorted(set(others)))
"""
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a priority for each thread")


def run_niceness(starts_thread):
    program = f"STARTS_THREAD = {starts_thread}\n{NICENESS}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return [int(word) for word in done.stdout.split()]


@ON_LINUX
def test_the_thread_has_a_low_priority_and_threads_that_compute_do_not():
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert run_niceness(starts_thread=False) == [min(writer.NICER_BY, 19 - own), own]


@ON_LINUX
def test_a_thread_that_a_job_starts_has_the_low_priority_too():
    # such as the monitor of tqdm, which save_pretrained starts: only a privileged process could raise it
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert run_niceness(starts_thread=True)[1:] == [own, min(own + writer.NICER_BY, 19)]


def test_in_place_the_priority_of_the_caller_stays():
    before = os.getpriority(os.PRIO_PROCESS, 0)
    background = BackgroundWriter(write_in_place=True)
    background.submit(lambda: None, "writing")
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), ProcessLookupError(3, "None")])
@pytest.mark.parametrize("call", ["getpriority", "setpriority"])
def test_a_system_that_refuses_another_priority_does_not_matter(error, call, monkeypatch):
    monkeypatch.setattr(os, call, lambda *values: fail(error)())
    background, done = BackgroundWriter(), []
    background.submit(lambda: done.append(1), "writing")
    assert background.join() is None
    assert done == [1]


def test_at_most_one_job_runs():
    background, running, most = BackgroundWriter(), [], []

    def job():
        running.append(1)
        most.append(len(running))
        time.sleep(0.005)
        running.pop()

    for _ in range(10):
        background.submit(job, "writing")
    background.join()
    assert most == [1] * 10


@BOTH
def test_an_error_is_given_and_logged_once(write_in_place, caplog):
    background, error = BackgroundWriter(write_in_place), OSError("the disk is full")
    background.submit(fail(error), "writing checkpoint-12")
    assert background.join() is error
    assert background.poll() is None
    assert background.join() is None
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.getMessage() == "writing checkpoint-12 failed: the disk is full"


def test_poll_gives_the_error_as_soon_as_the_job_has_ended():
    background, error = BackgroundWriter(), ValueError("no")
    background.submit(fail(error), "writing")
    deadline = time.monotonic() + 10
    while (found := background.poll()) is None and time.monotonic() < deadline:
        time.sleep(0.001)
    assert found is error


@BOTH
def test_errors_of_several_jobs_come_in_order(write_in_place):
    background, errors = BackgroundWriter(write_in_place), [OSError("first"), OSError("second")]
    for error in errors:
        background.submit(fail(error), "writing")
    assert [background.join(), background.join(), background.join()] == [*errors, None]


@BOTH
def test_a_job_that_failed_does_not_keep_the_next_from_running(write_in_place):
    background, done = BackgroundWriter(write_in_place), []
    background.submit(fail(OSError("no")), "writing")
    background.submit(lambda: done.append(1), "writing")
    assert isinstance(background.join(), OSError)
    assert done == [1]


def test_a_job_that_ends_its_thread_is_an_error_too():
    background = BackgroundWriter()
    background.submit(lambda: sys.exit(3), "writing")
    error = background.join()
    assert isinstance(error, RuntimeError)
    assert "SystemExit(3)" in str(error)


def test_in_place_an_interruption_reaches_the_caller():
    with pytest.raises(KeyboardInterrupt):
        BackgroundWriter(write_in_place=True).submit(fail(KeyboardInterrupt()), "writing")


def test_what_a_finished_job_held_is_let_go_of():
    class Large:
        def write(self):
            pass

    background, large = BackgroundWriter(), Large()
    alive = weakref.ref(large)
    background.submit(large.write, "writing")
    del large
    background.join()
    gc.collect()
    assert alive() is None


def test_without_a_thread_to_be_had_the_job_runs_in_the_caller(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    background, done = BackgroundWriter(), []
    background.submit(lambda: done.append(1), "writing")
    assert done == [1]
    assert background.join() is None


# ---- the end of the process ----

# the file alone, without its package: a process that need not load torch starts in no time
PROGRAM = """
import importlib.util, sys, time, os
spec = importlib.util.spec_from_file_location("writer", {file!r})
writer = importlib.util.module_from_spec(spec)
spec.loader.exec_module(writer)
background = writer.BackgroundWriter()

def job():
    time.sleep(0.2)
    with open({path!r}, "w") as file:
        file.write("whole")

def failing():
    time.sleep(0.1)
    raise OSError("the disk is full")

"""


def run(end, tmp_path):
    path = str(tmp_path / "written")
    program = PROGRAM.format(file=writer.__file__, path=path) + end
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    return done, os.path.exists(path) and open(path).read()


ENDS = {"the last line": ("", 0), "sys.exit": ("sys.exit(4)", 4), "an exception": ("1 / 0", 1)}


@pytest.mark.parametrize("end", ENDS)
def test_a_running_write_survives_the_end_of_the_program(end, tmp_path):
    line, code = ENDS[end]
    done, written = run(f"background.submit(job, 'writing')\n{line}", tmp_path)
    assert done.returncode == code, done.stderr
    assert written == "whole"


@pytest.mark.parametrize("end", ENDS)
def test_an_error_at_the_end_of_the_program_is_said_and_does_not_change_its_exit_code(end, tmp_path):
    line, code = ENDS[end]
    done, _ = run(f"background.submit(failing, 'writing checkpoint-9')\n{line}", tmp_path)
    assert done.returncode == code
    assert "writing checkpoint-9 failed: the disk is full" in done.stderr


def test_a_job_submitted_while_the_interpreter_ends_is_run(tmp_path):
    line = "import atexit\natexit.register(lambda: background.submit(job, 'writing'))"
    done, written = run(line, tmp_path)
    assert (done.returncode, written) == (0, "whole"), done.stderr


FORK = """
def failing_late():
    time.sleep(3)
    failing()

background.submit(failing_late, 'the job of the parent')
child = os.fork()
if child == 0:
    start = time.monotonic()
    assert background.join() is None
    assert time.monotonic() - start < 1.5, "the child waited for the parent's job"
    background.submit(job, 'the job of the child')
    assert background.join() is None
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert str(background.join()) == 'the disk is full'
"""


def test_a_forked_process_has_nothing_to_do_with_its_parents_job(tmp_path):
    done, written = run(FORK, tmp_path)
    assert done.returncode == 0, done.stderr
    assert written == "whole"
    assert done.stderr.count("the job of the parent failed") == 1


INTERRUPTED = """
import os, signal, threading, time
from footplate.checkpoint.writer import BackgroundWriter

may_end = threading.Event()

def write():
    may_end.wait(20)
    time.sleep(0.3)
    print("written", flush=True)

background = BackgroundWriter()
background.submit(write, "writing")
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    background.join()
except KeyboardInterrupt:
    print("interrupted", flush=True)
may_end.set()
JOIN_AGAIN
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
@pytest.mark.parametrize("join_again", ["background.join(); print('joined')", ""], ids=["joined", "at exit"])
def test_a_job_is_waited_for_though_an_interrupt_came_while_waiting(join_again):
    command = [sys.executable, "-c", INTERRUPTED.replace("JOIN_AGAIN", join_again)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["interrupted", "written", *(["joined"] if join_again else [])]
