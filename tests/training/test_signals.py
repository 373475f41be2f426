"""Signals as a flag: in real processes, with real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import types
from pathlib import Path

import pytest

import tiny
from footplate.training.signals import STOP_SIGNALS, StopSignals, is_interactive

PRELUDE = """
import os, signal, sys, threading, time
from footplate.training.signals import StopSignals

def ready():
    print("ready", flush=True)

def wait_for(stop, seconds=20.0):
    end = time.monotonic() + seconds
    while not stop.received and time.monotonic() < end:
        time.sleep(0.01)
    return stop.received
"""


class Child:
    """A process that runs a program and is sent signals when it says it is ready."""

    def __init__(self, program: str):
        source = PRELUDE + textwrap.dedent(program)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, "-c", source], text=True, **pipes)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def send_when_ready(self, number: int) -> None:
        assert self.process.stdout.readline() == "ready\n"
        self.process.send_signal(number)

    def finish(self) -> tuple[int, str, str]:
        output, errors = self.process.communicate(timeout=60)
        return self.process.returncode, output.strip(), errors


@pytest.fixture(autouse=True)
def handlers_as_they_were():
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    after = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert after == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGUSR1, 138)], ids=str)
def test_a_process_told_to_end_finishes_its_work_and_says_by_which_signal(number, code):
    program = """
        with StopSignals() as stop:
            ready()
            assert wait_for(stop)
            print("sealed", stop.name)
            stop.leave()
            print("not reached")
    """
    with Child(program) as child:
        child.send_when_ready(number)
        returned, output, errors = child.finish()
    assert (returned, output) == (code, f"sealed {signal.Signals(number).name}")
    assert "Training was stopped by" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("prompt", ["", "sys.ps1 = '>>> '"], ids=["script", "prompt"])
def test_ctrl_c_finishes_the_work_and_then_raises_a_keyboard_interrupt(prompt):
    program = f"""
        {prompt}
        try:
            with StopSignals() as stop:
                ready()
                assert wait_for(stop)
                print("sealed")
            stop.leave()
        except KeyboardInterrupt:
            print("interrupted")
    """
    with Child(program) as child:
        child.send_when_ready(signal.SIGINT)
        returned, output, errors = child.finish()
    assert (returned, output) == (0, "sealed\ninterrupted"), errors
    assert "Training was stopped by SIGINT" in errors


def test_a_sleep_is_finished_and_not_broken_off():
    program = """
        with StopSignals() as stop:
            start = time.monotonic()
            ready()
            time.sleep(0.5)
            assert time.monotonic() - start >= 0.5
            print(stop.received)
    """
    with Child(program) as child:
        child.send_when_ready(signal.SIGTERM)
        assert child.finish()[:2] == (0, "15")


def test_a_second_interrupt_stops_at_once():
    program = """
        try:
            with StopSignals() as stop:
                ready()
                assert wait_for(stop) == signal.SIGINT
                ready()
                time.sleep(30)
                print("not reached")
        except KeyboardInterrupt:
            print("at once", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    """
    with Child(program) as child:
        child.send_when_ready(signal.SIGINT)
        child.send_when_ready(signal.SIGINT)
        assert child.finish()[:2] == (0, "at once True")


def test_repeated_notices_to_end_change_nothing():
    program = """
        with StopSignals() as stop:
            ready()
            assert wait_for(stop) == signal.SIGUSR1
            ready()
            time.sleep(0.3)
            ready()
            time.sleep(0.3)
            stop.leave()
    """
    with Child(program) as child:
        child.send_when_ready(signal.SIGUSR1)
        child.send_when_ready(signal.SIGTERM)
        child.send_when_ready(signal.SIGINT)  # the first one of its kind
        assert child.finish()[0] == 128 + signal.SIGUSR1


def test_a_handler_that_ends_the_process_is_called_after_the_work_is_done():
    program = """
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
        with StopSignals() as stop:
            ready()
            assert wait_for(stop)
            print("sealed")
        print("not reached")
    """
    with Child(program) as child:
        child.send_when_ready(signal.SIGTERM)
        assert child.finish()[:2] == (7, "sealed")


def test_the_default_ends_the_process_again_after_the_block():
    program = """
        with StopSignals():
            pass
        ready()
        time.sleep(30)
    """
    with Child(program) as child:
        child.send_when_ready(signal.SIGTERM)
        assert child.finish()[0] == -signal.SIGTERM


def test_earlier_handlers_are_called_in_order_and_come_back():
    calls = []
    handlers = {number: lambda number, frame: calls.append(number) for number in STOP_SIGNALS}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    with StopSignals() as stop:
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            os.kill(os.getpid(), number)
        assert stop.received == signal.SIGUSR1
        assert calls == []
    assert calls == [signal.SIGUSR1, signal.SIGTERM, signal.SIGINT]
    assert {number: signal.getsignal(number) for number in STOP_SIGNALS} == handlers
    for number, handler in before.items():
        signal.signal(number, handler)


def test_an_earlier_handler_is_not_called_without_a_signal():
    calls = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: calls.append(number))
    with StopSignals() as stop:
        pass
    signal.signal(signal.SIGTERM, before)
    assert (calls, stop.received, stop.exit_code, stop.name) == ([], 0, 0, "")


def test_of_two_blocks_both_learn_of_a_signal_that_the_inner_one_took():
    with StopSignals() as outer:
        with StopSignals() as inner:
            os.kill(os.getpid(), signal.SIGTERM)
            assert (inner.received, outer.received) == (signal.SIGTERM, 0)
        assert outer.received == signal.SIGTERM
        assert outer.exit_code == 143


def test_a_handler_that_a_client_sets_inside_the_block_is_called_after_the_work_is_done():
    program = """
        with StopSignals() as stop:
            signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
            stop.keep()
            ready()
            assert wait_for(stop)
            print("sealed")
        print("not reached")
    """
    with Child(program) as child:
        child.send_when_ready(signal.SIGTERM)
        assert child.finish()[:2] == (7, "sealed")


def test_a_handler_that_a_client_set_inside_the_block_stays_after_it():
    calls = []

    def of_client(number, frame):
        calls.append(number)

    before = signal.getsignal(signal.SIGTERM)
    for is_kept in (True, False):  # also one that was set after the last look
        with StopSignals() as stop:
            signal.signal(signal.SIGTERM, of_client)
            if is_kept:
                stop.keep()
        assert signal.getsignal(signal.SIGTERM) is of_client
        os.kill(os.getpid(), signal.SIGTERM)
        signal.signal(signal.SIGTERM, before)
    assert calls == [signal.SIGTERM] * 2


def test_what_is_ignored_inside_the_block_stays_ignored():
    before = signal.getsignal(signal.SIGUSR1)
    with StopSignals() as stop:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        stop.keep()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert stop.received == 0
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("earlier", ["SIG_DFL", "own"])
def test_a_client_that_puts_our_handler_back_too_late_does_not_swallow_signals(earlier):
    program = f"""
        if {earlier!r} == "own":
            signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
        with StopSignals() as stop:
            replaced = signal.signal(signal.SIGTERM, lambda number, frame: None)
        signal.signal(signal.SIGTERM, replaced)
        ready()
        time.sleep(30)
    """
    with Child(program) as child:
        child.send_when_ready(signal.SIGTERM)
        assert child.finish()[0] == (7 if earlier == "own" else -signal.SIGTERM)


def test_handlers_come_back_when_the_block_raises():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(RuntimeError, match="in the middle"), StopSignals():
        raise RuntimeError("in the middle")
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    with StopSignals() as stop:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert stop.received == 0
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    signal.signal(signal.SIGUSR1, before)


def test_another_thread_leaves_signals_alone():
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def work():
        with StopSignals() as stop:
            seen.append((signal.getsignal(signal.SIGTERM), stop.received))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(before, 0)]


def test_a_run_in_another_thread_is_as_one_in_the_main_thread(tmp_path, caplog):
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    found = []

    def work(folder):
        trainer = tiny.build_trainer(
            tmp_path / folder,
            tiny.Regression(),
            tiny.regression_data(16),
            tiny.regression_data(8),
            max_steps=4,
            **{"save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2},
        )
        output = trainer.train()
        assert Path(tmp_path, folder, "checkpoint-4", "manifest.json").is_file()
        found.append((output.global_step, output.training_loss, trainer.model.slope.item()))

    work("main")
    caplog.clear()
    for number in range(2):
        thread = threading.Thread(target=work, args=(f"thread-{number}",))
        thread.start()
        thread.join()
    assert found == [found[0]] * 3
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before
    assert len([record for record in caplog.records if "signal" in record.getMessage()]) <= 1


def test_the_flag_is_set_while_another_thread_works():
    program = """
        done = []
        worker = threading.Thread(target=lambda: (time.sleep(0.5), done.append(True)))
        with StopSignals() as stop:
            worker.start()
            ready()
            assert wait_for(stop)
            worker.join()
            print(stop.received, done)
    """
    with Child(program) as child:
        child.send_when_ready(signal.SIGTERM)
        assert child.finish()[:2] == (0, "15 [True]")


def test_a_forked_child_can_be_terminated_and_survives_an_interrupt():
    program = """
        import multiprocessing
        context = multiprocessing.get_context("fork")
        with StopSignals() as stop:
            worker = context.Process(target=time.sleep, args=(60,))
            worker.start()
            for number in (signal.SIGINT, signal.SIGINT, signal.SIGUSR1):
                os.kill(worker.pid, number)
            worker.join(0.3)
            print(worker.is_alive())
            worker.terminate()
            worker.join(10)
            print(worker.exitcode, stop.received)
    """
    with Child(program) as child:
        assert child.finish()[:2] == (0, f"True\n-{signal.SIGTERM.value} 0")


def test_at_a_prompt_leaving_is_a_clean_return():
    program = """
        sys.ps1 = ">>> "
        with StopSignals() as stop:
            ready()
            assert wait_for(stop)
            stop.leave()
        print("the prompt is still there")
    """
    with Child(program) as child:
        child.send_when_ready(signal.SIGTERM)
        assert child.finish()[:2] == (0, "the prompt is still there")


def test_a_kernel_counts_as_interactive_and_ipython_is_not_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not is_interactive()
    assert "IPython" not in sys.modules
    for shell in (None, object()):
        module = types.SimpleNamespace(get_ipython=lambda shell=shell: shell)
        monkeypatch.setitem(sys.modules, "IPython", module)
        assert is_interactive() is (shell is not None)


def test_looking_at_the_flag_runs_no_code():
    assert isinstance(vars(StopSignals)["received"], types.MemberDescriptorType)
