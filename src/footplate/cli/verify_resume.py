"""`footplate verify-resume script.py`: compare a run of your script with one that was interrupted."""

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
from footplate.cli.rehearse import Order, Start, load_outcome, load_start
from footplate.testing import Outcome, find_difference

NUM_LINES_SHOWN = 30  # of the output of a script that failed


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
    """Run the script three times and compare; the exit code is 0 if the results are equal, else 1."""
    if not Path(options.script).is_file():
        raise ValueError(f"{options.script!r} is not a file. Give the script that trains.")
    if options.keep is not None:
        Path(options.keep).mkdir(parents=True, exist_ok=True)
        if any(Path(options.keep).iterdir()):
            raise ValueError(f"--keep {options.keep} is not empty. Give a new folder.")
    holder = tempfile.TemporaryDirectory() if options.keep is None else nullcontext(options.keep)
    with holder as folder:
        difference, notes = verify(
            [options.script, *options.arguments],
            Path(folder),
            stop_at=options.at,
            max_steps=options.steps,
            number=signal.SIGKILL if options.kill else signal.SIGTERM,
        )
    for note in notes:
        print(note)
    if difference is None:
        print("The resumed run equals the straight run to the bit: log, weights, optimizer, random state.")
        return 0
    print(f"The resumed run differs from the straight run. First difference: {difference}")
    return 1


def verify(
    command: Sequence[str], folder: Path, stop_at: int | None, max_steps: int | None, number: int
) -> tuple[str | None, list[str]]:
    """The first difference between a straight run of the script and an interrupted one, None if equal; notes.

    What the script draws before it seeds anything is the same in the straight and in the interrupted run, as
    both must begin alike. The resumed run draws other numbers: it must not depend on them.
    """
    straight = Order(str(folder / "straight"), max_steps)
    expected = finish(command, straight, "straight")
    num_updates = expected["global_step"]
    stop_at = max(1, num_updates // 2) if stop_at is None else stop_at
    if not 0 < stop_at < num_updates:
        raise ValueError(f"--at {stop_at} is not inside the run of {num_updates} updates.")

    interrupted = Order(str(folder / "interrupted"), max_steps, stop_at=stop_at, signal=number)
    interrupt(command, interrupted)
    resumed = Order(interrupted.folder, max_steps, resume=True, seed=1)
    difference = find_difference(expected, finish(command, resumed, "resumed"))
    return difference, compare_starts(*map(load_start, (straight, interrupted, resumed)))


def compare_starts(straight: Start, interrupted: Start, resumed: Start) -> list[str]:
    """What the script begins with at random: the reason of a difference, or a reason to seed it."""
    advice = "call footplate.set_seed(...) before it builds"
    if straight.weights != interrupted.weights or straight.first_row != interrupted.first_row:
        what = "weights" if straight.weights != interrupted.weights else "data"
        return [
            f"The script begins with other {what} at every start, even if the random generators are seeded "
            "before it: no two runs of it are equal, resumed or not. Look for what seeds by the time or "
            f"draws elsewhere, or {advice} model and data."
        ]
    notes = []
    if straight.weights != resumed.weights:
        notes.append(
            "The script does not seed before it builds its model, so each start begins with other weights. "
            "The straight and the interrupted run were seeded alike to compare them, and a resume replaces "
            f"the weights. For runs that can be repeated, {advice} the model, or pass model_init to Trainer."
        )
    if straight.first_row != resumed.first_row:
        notes.append(
            "The script makes its training data at random and does not seed it, so a resumed run goes on "
            f"with other data: {advice} the data."
        )
    return notes


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
    """Run the script until it is interrupted; raise if there is no checkpoint to resume from."""
    ended = rehearse(command, order, "interrupted")
    expected = -signal.SIGKILL if order.signal == signal.SIGKILL else 128 + order.signal
    if ended.code != expected:
        raise ValueError(
            f"The interrupted run ended with code {ended.code}, but {expected} was expected of "
            f"{signal.Signals(order.signal).name} after update {order.stop_at}:\n{ended.output}"
        )
    checkpoint = find_last_checkpoint(order.folder)
    if checkpoint is None:
        raise ValueError(
            f"There is no checkpoint after update {order.stop_at}. With --kill the script must have saved one"
            " by then: let it save earlier, or choose a later --at."
        )
    name, point = signal.Signals(order.signal).name, Path(checkpoint).name
    print(f"interrupted: {name} after update {order.stop_at}, {point} remains, {ended.seconds:.1f} s")


def rehearse(command: Sequence[str], order: Order, name: str) -> Ended:
    """Run the script in another process, with its output in a file."""
    log = Path(order.folder).with_name(f"{name}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    with open(log, "w", encoding="utf-8") as file:
        words = [sys.executable, "-m", "footplate.cli.rehearse", order.to_json(), *command]
        done = subprocess.run(words, stdout=file, stderr=subprocess.STDOUT, check=False)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return Ended(done.returncode, time.monotonic() - start, "\n".join(lines[-NUM_LINES_SHOWN:]))
