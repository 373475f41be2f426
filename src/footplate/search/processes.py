"""Trials side by side, each in a process of its own; the search itself stays in this one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from importlib import import_module
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

from footplate.search.desk import Begun, Desk
from footplate.search.outcomes import FAILED, Outcome

END_SECONDS = 30.0  # for a process that is asked to end; it may be writing a checkpoint
MAX_LOG_CHARACTERS = 2000


class Worker:
    """One process, and the trial that it runs.

    Args:
        payload: What it runs, by `dump`.
        log: The file that what it prints is added to.
        variables: Its environment.
    """

    def __init__(self, payload: bytes, log: Path, variables: dict[str, str]) -> None:
        self.log = log
        self.begun: Begun | None = None
        self.is_ready = False
        self.connection, theirs = Pipe()
        command = [sys.executable, "-m", "footplate.search.worker", str(theirs.fileno())]
        with open(log, "ab") as file, theirs:
            self.process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=variables,
                start_new_session=True,  # Ctrl-C is for the search, which ends its processes itself
            )
        with suppress(BrokenPipeError):  # it has ended already, which is seen when it is read from
            self.connection.send(sys.path)
            self.connection.send_bytes(payload)

    def give(self, begun: Begun | None) -> None:
        """Let it run a trial; None lets it end."""
        self.begun = begun
        with suppress(BrokenPipeError):
            self.connection.send(begun)

    def read_log(self) -> str:
        """The end of what it has printed."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-MAX_LOG_CHARACTERS:].strip()

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self.connection.close()
        if self.begun is None and self.is_ready:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(END_SECONDS)
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Line:
    """What a trial in a process of its own tells the search, and asks of it.

    Args:
        connection: The way to the search.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def report(self, number: int, values: list[float], step: int) -> bool:
        """Take the objectives of an evaluation; True if the trial should end here."""
        return bool(self._ask("report", number, values, step))

    def choose(self, number: int, domain: Any) -> Any:
        """The value of a further name."""
        return self._ask("choose", number, domain)

    def tell(self, outcome: Outcome) -> None:
        """Take how the trial ended."""
        self.connection.send(("tell", outcome))

    def _ask(self, *question: Any) -> Any:
        self.connection.send(question)
        return self.connection.recv()


def run_side_by_side(
    desk: Desk, start: Callable[[int], Worker], count: int, ended: Callable[[Outcome], None]
) -> None:
    """Run trials in several processes until no further one begins.

    Args:
        desk: Where trials come from.
        start: Starts the process with this number.
        count: How many run at the same time.
        ended: Called with each outcome.
    """
    with ExitStack() as stack:
        workers: dict[int, Worker] = {}
        idle = list(range(count))
        while idle or workers:
            while idle and (begun := desk.ask()) is not None:
                place = idle.pop()
                workers[place] = workers.get(place) or _keep(stack, start(place))
                workers[place].give(begun)
            busy = {worker.connection: place for place, worker in workers.items() if worker.begun is not None}
            if not busy:
                return
            for connection in wait(list(busy)):
                place = busy[connection]  # type: ignore[index]
                outcome = _hear(workers[place], desk)
                if outcome is None:
                    continue
                if workers[place].process.poll() is not None:
                    workers.pop(place).close()  # the next trial there gets a new process
                idle.append(place)
                desk.tell(outcome)
                ended(outcome)


def _keep(stack: ExitStack, worker: Worker) -> Worker:
    stack.callback(worker.close)
    return worker


def _hear(worker: Worker, desk: Desk) -> Outcome | None:
    """Take one message of a process; how its trial ended, if it did."""
    assert worker.begun is not None
    try:
        kind, *rest = worker.connection.recv()
        if kind == "ready":
            worker.is_ready = True
        elif kind == "tell":
            worker.begun = None
            return rest[0]  # type: ignore[no-any-return]
        else:
            worker.connection.send(getattr(desk, kind)(*rest))
    except (EOFError, ConnectionResetError, BrokenPipeError):
        return _lose(worker)
    return None


def _lose(worker: Worker) -> Outcome:
    """How the trial of a process ended that is gone; raises if it never came to its first trial."""
    code, begun = worker.process.wait(), worker.begun
    assert begun is not None
    if not worker.is_ready:
        raise RuntimeError(
            f"A process of the search ended with code {code} before its first trial. The end of "
            f"{worker.log}:\n{worker.read_log()}"
        )
    worker.begun = None
    error = f"its process ended with code {code}; {worker.log} has what it printed"
    return Outcome(begun.number, FAILED, begun.params, folder=begun.name, error=error)


def dump(value: Any) -> bytes:
    """A function with all that it holds, also what a script defines; an error says what could not travel."""
    try:
        cloudpickle: Any = import_module("cloudpickle")
    except ImportError as error:
        raise ImportError("n_jobs needs a package: pip install 'footplate[search]'") from error
    try:
        return cloudpickle.dumps(value)  # type: ignore[no-any-return]
    except Exception as error:
        raise ValueError(
            f"n_jobs hands the Trainer to other processes, and a part of it cannot travel: {error}. Let "
            "callbacks, datasets and functions hold no locks, open files or connections before training "
            "begins, or leave n_jobs unset."
        ) from error


def environment(place: int, count: int) -> dict[str, str]:
    """The variables of one process of several: its share of the cores, and one device where there are many.

    Args:
        place: Which process it is.
        count: How many there are.
    """
    variables = dict(os.environ)
    variables.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    devices = [name for name in variables.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if not devices:
        import torch

        devices = [str(index) for index in range(torch.cuda.device_count())]
    if len(devices) > 1:
        variables["CUDA_VISIBLE_DEVICES"] = devices[place % len(devices)]
    return variables
