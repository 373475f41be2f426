"""A guard between a run and services that fail, hang, flood or die; real threads, real processes."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from footplate.integrations.guard import QUEUE_SIZE, Guard, SetupError

QUICK = (0.01, 0.02, 0.03)


class Service:
    """Notes its calls; fails in those that it is told to."""

    def __init__(self, failures: int = 0, error: type[BaseException] = ConnectionError) -> None:
        self.failures, self.error = failures, error
        self.calls: list[object] = []
        self.threads: set[str] = set()
        self.num_attempts = 0

    def write(self, value: object) -> None:
        self.num_attempts += 1
        self.threads.add(threading.current_thread().name)
        if self.num_attempts <= self.failures:
            raise self.error("no network\nand a second line")
        self.calls.append(value)


def test_calls_are_made_in_order_on_one_other_thread():
    guard, service = Guard("wandb"), Service()
    for number in range(500):
        guard.submit(service.write, number)
    assert guard.flush(10)
    assert service.calls == list(range(500))
    assert service.threads == {"footplate-wandb"}


def test_no_thread_is_started_before_the_first_call():
    before = threading.active_count()
    guard = Guard("mlflow")
    assert guard.flush(1)
    assert threading.active_count() == before
    guard.submit(int)
    assert guard.flush(5)
    assert threading.active_count() == before + 1


def test_a_call_that_fails_is_warned_of_once_and_made_again(caplog):
    guard, service = Guard("wandb", QUICK), Service(failures=2)
    for value in "abc":
        guard.submit(service.write, value)
    assert guard.flush(10)
    assert service.calls == ["a", "b", "c"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    message = caplog.records[0].getMessage()
    assert message.startswith("wandb: write failed: ConnectionError: no network Training goes on")
    assert "\n" not in message
    assert "3 further attempts" in message


def test_a_call_that_fails_for_good_switches_the_tracker_off_and_names_the_remedy(caplog):
    guard, service = Guard("wandb", QUICK), Service(failures=10**9)
    for value in "abc":
        guard.submit(service.write, value)
    assert not guard.flush(10)
    assert guard.is_off
    assert isinstance(guard.error, ConnectionError)
    assert service.num_attempts == 4  # one and three more, of the first call only
    guard.submit(service.write, "d")
    time.sleep(0.05)
    assert service.num_attempts == 4
    last = caplog.records[-1].getMessage()
    assert "wandb is switched off, training goes on without it" in last
    assert "footplate sync DIR --to wandb" in last
    assert len(caplog.records) == 2


@pytest.mark.parametrize("error", [SetupError, ImportError])
def test_what_no_second_attempt_can_mend_is_not_tried_again(error):
    guard, service = Guard("comet_ml", (30.0,)), Service(failures=9, error=error)
    guard.submit(service.write, 1)
    assert not guard.flush(5)
    assert (guard.is_off, service.num_attempts) == (True, 1)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_client_that_wants_to_exit_does_not_take_the_thread_along(error):
    guard, service = Guard("clearml", QUICK), Service(failures=1, error=error)
    guard.submit(service.write, 1)
    assert guard.flush(10)
    assert service.calls == [1]


def test_a_call_that_hangs_makes_nobody_wait():
    guard, release = Guard("wandb"), threading.Event()
    begun = time.monotonic()
    guard.submit(release.wait)
    for number in range(1000):
        guard.submit(print, number)
    assert time.monotonic() - begun < 10.0  # it would hang for ever; the rest is how busy the machine is
    assert not guard.flush()  # two seconds for a guard this young
    assert time.monotonic() - begun < 20.0
    time.sleep(max(0.0, begun + 3.1 - time.monotonic()))
    begun = time.thread_time()
    assert not guard.flush()  # it has been in that call for three seconds: no wait at all
    assert time.thread_time() - begun < 0.2
    release.set()
    assert guard.flush(10)


def test_a_full_queue_switches_the_tracker_off_so_that_no_hole_is_sent(caplog):
    guard, release, sent = Guard("mlflow", size=100), threading.Event(), []
    guard.submit(release.wait)
    while not guard._is_busy:
        time.sleep(0.001)
    for number in range(102):
        guard.submit(sent.append, number)
    assert guard.is_off
    release.set()
    time.sleep(0.05)
    assert sent == []
    assert "100 events wait for it" in caplog.text
    assert QUEUE_SIZE >= 10_000


def test_a_submit_costs_microseconds():
    guard, done = Guard("trackio", size=10**6), []
    guard.submit(time.sleep, 0.5)  # the queue grows meanwhile
    begun = time.thread_time()  # of this thread alone: others may have the machine
    for number in range(5000):
        guard.submit(done.append, number)
    cost = (time.thread_time() - begun) / 5000
    assert cost < 100e-6
    assert guard.flush(10)
    assert len(done) == 5000


def test_a_guard_that_is_off_has_another_chance_in_the_next_run():
    guard, service = Guard("wandb", QUICK), Service(failures=4)
    guard.submit(service.write, "lost")
    assert not guard.flush(10)
    guard.revive()
    guard.submit(service.write, "new")
    assert guard.flush(10)
    assert service.calls == ["new"]


def test_a_guard_that_still_hangs_has_none():
    guard, release = Guard("wandb", size=1), threading.Event()
    guard.submit(release.wait)
    while not guard._is_busy:
        time.sleep(0.001)
    guard.submit(int)
    guard.submit(int)
    assert guard.is_off
    guard.revive()
    assert guard.is_off
    release.set()


def test_a_message_handler_that_fails_stops_nothing():
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("of the user's")

    guard, service, handler = Guard("wandb", QUICK), Service(failures=1), Broken()
    logging.getLogger("footplate").addHandler(handler)
    try:
        guard.submit(service.write, 1)
        assert guard.flush(10)
    finally:
        logging.getLogger("footplate").removeHandler(handler)
    assert service.calls == [1]


def test_the_thread_may_ask_its_own_guard_without_waiting_for_itself():
    guard, answers = Guard("wandb"), []
    guard.submit(lambda: answers.append(guard.flush(60)))
    assert guard.flush(5)
    assert answers == [True]


def test_a_guard_can_be_pickled_and_begins_anew():
    guard = Guard("wandb", QUICK, size=7)
    guard.submit(int)
    copy = pickle.loads(pickle.dumps(guard))
    assert (copy.name, copy.delays, copy.size, copy.is_off) == ("wandb", QUICK, 7, False)
    copy.submit(int)
    assert copy.flush(5)


def test_a_fork_leaves_the_queue_of_its_parent_alone(tmp_path):
    guard, file = Guard("wandb"), tmp_path / "calls"

    def note(text: str) -> None:
        with open(file, "a") as out:
            out.write(f"{text} {os.getpid()}\n")

    guard.submit(note, "parent")
    assert guard.flush(5)
    child = os.fork()
    if child == 0:
        guard.submit(note, "child")
        os._exit(0 if not guard.flush(0.2) else 1)
    assert os.waitpid(child, 0)[1] == 0
    guard.submit(note, "parent")
    assert guard.flush(5)
    assert file.read_text() == f"parent {os.getpid()}\n" * 2


def test_a_fork_may_use_a_guard_that_nobody_used_before():
    guard = Guard("wandb")
    child = os.fork()
    if child == 0:
        done: list[int] = []
        guard.submit(done.append, 1)
        os._exit(0 if guard.flush(5) and done == [1] else 1)
    assert os.waitpid(child, 0)[1] == 0


# ---- when Python ends ----


def run_script(text: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Run a script that prints `end` as its last act, and say how long Python took to leave after it."""
    head = """
        import sys, threading, time
        from concurrent.futures import ThreadPoolExecutor
        from footplate.integrations import guard as module
        from footplate.integrations.guard import Guard
        guard = Guard("wandb")
    """
    script = textwrap.dedent(head) + textwrap.dedent(text) + "\nprint('end', time.time(), flush=True)\n"
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    left = time.time()
    end = next(line for line in finished.stdout.splitlines() if line.startswith("end"))
    return left - float(end.split()[1]), finished


def test_what_is_left_is_done_before_python_ends_by_clients_that_still_use_threads():
    _, finished = run_script("""
        def send(number):
            time.sleep(0.05)
            with ThreadPoolExecutor(1) as pool:
                print("sent", pool.submit(int, number).result(), flush=True)
        guard.at_exit = lambda: guard.submit(send, 99)
        for number in range(10):
            guard.submit(send, number)
    """)
    assert finished.returncode == 0
    sent = [line for line in finished.stdout.splitlines() if line.startswith("sent")]
    assert sent == [f"sent {number}" for number in (*range(10), 99)]
    assert finished.stderr == ""


def test_python_leaves_a_tracker_that_hangs():
    seconds, finished = run_script("""
        module.EXIT_PATIENCE = 1.0
        guard.submit(time.sleep, 60)
        time.sleep(0.5)
    """)
    assert finished.returncode == 0
    assert seconds < 4
    assert "wandb did not take all of the run in time" in finished.stderr
    assert "footplate sync DIR --to wandb" in finished.stderr


def test_python_leaves_a_tracker_that_is_slow_without_end():
    seconds, finished = run_script("""
        module.EXIT_WAIT = 1.0
        for number in range(1000):
            guard.submit(time.sleep, 0.1)
    """)
    assert finished.returncode == 0
    assert 0.9 < seconds < 4
    assert "did not take all of the run in time" in finished.stderr
