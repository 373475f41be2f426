"""`footplate verify-resume script.py`: your own script straight, and interrupted and resumed, bit for bit."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from footplate.checkpoint import find_last_checkpoint
from footplate.cli.rehearse import Order, load_outcome
from footplate.testing import Outcome, find_difference

NUM_LINES_SHOWN = 30  # of a script that failed


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    text = (
        "Run a script straight, and interrupted and resumed; compare weights, optimizer and log bit for bit."
    )
    parser = commands.add_parser("verify-resume", help=text, description=text)
    parser.add_argument("--at", type=int, metavar="N", help="Interrupt after update N; default: the middle.")
    parser.add_argument("--steps", type=int, metavar="N", help="Train N updates instead of the script's own.")
    parser.add_argument(
        "--kill", action="store_true", help="Interrupt with SIGKILL, to resume from the last scheduled save."
    )
    parser.add_argument("--keep", metavar="DIR", help="Keep both runs and their output in this folder.")
    parser.add_argument("script", help="A Python script that calls Trainer.train().")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="Arguments of the script.")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Three runs and a verdict; the exit code is 0 where the runs are equal and 1 where they are not."""
    if not Path(options.script).is_file():
        raise ValueError(f"{options.script!r} is no file. Give the script that trains.")
    if options.keep is not None:
        Path(options.keep).mkdir(parents=True, exist_ok=True)
        if any(Path(options.keep).iterdir()):
            raise ValueError(f"--keep {options.keep} is not empty. Give a new folder.")
    holder = tempfile.TemporaryDirectory() if options.keep is None else nullcontext(options.keep)
    with holder as folder:
        difference = verify(
            [options.script, *options.arguments],
            Path(folder),
            stop_at=options.at,
            max_steps=options.steps,
            number=signal.SIGKILL if options.kill else signal.SIGTERM,
        )
    if difference is None:
        print(
            "The resumed run is the straight run: log, weights, optimizer, schedule, generators, to the bit."
        )
        return 0
    print(f"The resumed run is not the straight run. First difference: {difference}")
    return 1


def verify(
    command: Sequence[str], folder: Path, stop_at: int | None, max_steps: int | None, number: int
) -> str | None:
    """The first difference between a straight run of the script and an interrupted one, None without one."""
    straight = Order(str(folder / "straight"), max_steps)
    expected = finish(command, straight, "straight")
    num_updates = expected["global_step"]
    stop_at = max(1, num_updates // 2) if stop_at is None else stop_at
    if not 0 < stop_at < num_updates:
        raise ValueError(f"--at {stop_at} is not inside the run of {num_updates} updates.")

    interrupted = Order(str(folder / "interrupted"), max_steps, stop_at=stop_at, signal=number)
    interrupt(command, interrupted)
    resumed = Order(interrupted.folder, max_steps, resume=True)
    return find_difference(expected, finish(command, resumed, "resumed"))


class Ended(NamedTuple):
    """How a run of the script ended."""

    code: int
    seconds: float
    output: str


def finish(command: Sequence[str], order: Order, name: str) -> Outcome:
    """Run the script to the end of its training."""
    ended = rehearse(command, order, name)
    outcome = load_outcome(order.folder) if ended.code == 0 else None
    if outcome is None:
        raise ValueError(f"The {name} run ended with code {ended.code}:\n{ended.output}")
    print(f"{name}: {outcome['global_step']} updates, {ended.seconds:.1f} s")
    return outcome


def interrupt(command: Sequence[str], order: Order) -> None:
    """Run the script until it is interrupted; raises where that left nothing to resume from."""
    ended = rehearse(command, order, "interrupted")
    expected = -signal.SIGKILL if order.signal == signal.SIGKILL else 128 + order.signal
    if ended.code != expected:
        raise ValueError(
            f"The interrupted run ended with code {ended.code}, and {expected} was expected of "
            f"{signal.Signals(order.signal).name} after update {order.stop_at}:\n{ended.output}"
        )
    checkpoint = find_last_checkpoint(order.folder)
    if checkpoint is None:
        raise ValueError(
            f"There is no checkpoint after update {order.stop_at}. With --kill the script must have saved one"
            " by then: let it save earlier, or choose a later --at."
        )
    name, point = signal.Signals(order.signal).name, Path(checkpoint).name
    print(f"interrupted: {name} after update {order.stop_at}, {point} is left, {ended.seconds:.1f} s")


def rehearse(command: Sequence[str], order: Order, name: str) -> Ended:
    """Run the script in a process of its own, what it prints going to a file."""
    log = Path(order.folder).with_name(f"{name}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    with open(log, "w", encoding="utf-8") as file:
        words = [sys.executable, "-m", "footplate.cli.rehearse", order.to_json(), *command]
        done = subprocess.run(words, stdout=file, stderr=subprocess.STDOUT, check=False)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return Ended(done.returncode, time.monotonic() - start, "\n".join(lines[-NUM_LINES_SHOWN:]))
