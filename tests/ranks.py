"""Runs a script on several real processes, with torchrun or without it."""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed

SECONDS = 240  # a machine that does much else needs this long to start four interpreters


@dataclass
class Result:
    """What a command left: its exit code, everything it printed, and when it ended."""

    code: int
    output: str
    ended_at: float

    def times(self, word: str) -> list[float]:
        """The times in lines such as "raised at 12.5"."""
        lines = self.output.splitlines()
        return [float(line.split(" at ")[1]) for line in lines if line.startswith(f"{word} at ")]


def torchrun(script: Path, *args: str, num_processes: int = 2, options: Sequence[str] = ()) -> Result:
    """Run a script with torchrun, and with options for it, on this machine."""
    return _wait([start_torchrun(script, *args, num_processes=num_processes, options=options)])[0]


def start_torchrun(
    script: Path, *args: str, num_processes: int = 2, options: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """Start a script with torchrun, and do not wait for it."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_processes)]
    return _start([*launcher, *options, str(script), *args], {})


def run_each(script: Path, *args: str, num_processes: int = 2) -> list[Result]:
    """Run a script once per rank without a launcher: rank 0 holds the store."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(num_processes)}
    ranks = [{**common, "RANK": str(number)} for number in range(num_processes)]
    return _wait([_start([str(script), *args], variables) for variables in ranks])


def _start(command: list[str], variables: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _wait(processes: list[subprocess.Popen[str]]) -> list[Result]:
    try:
        outputs = [(process.communicate(timeout=SECONDS)[0], time.time()) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [Result(process.returncode, *output) for process, output in zip(processes, outputs, strict=True)]


def fork(function: Callable[[int], Any], folder: Path, num_processes: int = 2) -> list[Any]:
    """What a function returns on each of several processes that have met; it gets the number of its own.

    They begin as copies of this process, in a moment: torch is loaded already.
    """
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe(duplex=False) for _ in range(num_processes)]
    processes = [
        context.Process(target=_meet, args=(function, folder, number, num_processes, sender))
        for number, (_, sender) in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    try:
        answers = [
            receiver.recv() if receiver.poll(SECONDS) else (None, "no answer") for receiver, _ in pipes
        ]
    finally:
        for process in processes:
            process.join(timeout=10)
            process.kill()
    errors = [error for _, error in answers if error]
    assert not errors, "\n".join(errors)
    return [result for result, _ in answers]


def _meet(function: Callable[[int], Any], folder: Path, number: int, num_processes: int, sender: Any) -> None:
    """Run in each process: meet, call the function, send what it gave."""
    where = f"file://{folder}/meeting"
    torch.distributed.init_process_group("gloo", where, rank=number, world_size=num_processes)
    try:
        sender.send((function(number), None))
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    except BaseException:
        sender.send((None, f"rank {number}: {traceback.format_exc()}"))
    os._exit(0)  # the rest of pytest is not for copies
