"""Legs of runs with trackers in trouble, each in a process of its own.

Started as a script, it reads a folder, a tracker and the step of a kill per line, and answers with the exit
code. A leg is a fork, so that Python and torch start once; it ends as every script does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from torch.utils import tensorboard  # noqa: F401  # here, so that no leg has to

import tiny
from footplate import Trainer, TrainerCallback
from footplate.integrations.base import TrackerCallback
from footplate.integrations.run import Run
from footplate.integrations.tensorboard import TensorBoardCallback

NUM_STEPS, PAUSE = 40, 0.05


# ---- trackers in trouble ----


class RaisesAlways(TensorBoardCallback):
    def write(self, values: dict[str, Any], step: int) -> None:
        raise ConnectionError("no network")


class RaisesOnce(TensorBoardCallback):
    has_raised = False

    def write(self, values: dict[str, Any], step: int) -> None:
        if step == 5 and not self.has_raised:
            self.has_raised = True
            raise SystemExit("a client that gives up")
        super().write(values, step)


class Blocks(TensorBoardCallback):
    def write(self, values: dict[str, Any], step: int) -> None:
        if step == 2:
            time.sleep(60)
        super().write(values, step)


class BlocksAtOpen(TensorBoardCallback):
    def open(self, run: Run) -> str | None:
        time.sleep(60)
        return super().open(run)


SERVER = """
import json, sys
for line in sys.stdin:
    with open(sys.argv[1], "a") as file:
        file.write(line)
    print("ok", flush=True)
"""


class Served(TrackerCallback):
    """A client of a server process, which somebody kills at step 20."""

    name, package = "served", "torch"

    def open(self, run: Run) -> str | None:
        command = [sys.executable, "-c", SERVER, str(Path(run.output_dir, "served.jsonl"))]
        self.server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return run.run_id

    def write(self, values: dict[str, Any], step: int) -> None:
        if step == 20:
            self.server.kill()
            self.server.wait()
        self.server.stdin.write(json.dumps({"step": step, **values}) + "\n")
        self.server.stdin.flush()
        if self.server.stdout.readline() != "ok\n":
            raise ConnectionError("the server is gone")


TRACKERS: dict[str, Any] = {
    "none": None,
    "healthy": TensorBoardCallback,
    "workers": TensorBoardCallback,
    "raises_always": RaisesAlways,
    "raises_once": RaisesOnce,
    "blocks": Blocks,
    "blocks_at_open": BlocksAtOpen,
    "served": Served,
}


# ---- one leg of a run, in a process of its own ----


class Pace(TrainerCallback):
    """Makes a step take a while, and one of them the last, as the kernel would."""

    def __init__(self, kill_at: int) -> None:
        self.kill_at = kill_at

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        time.sleep(PAUSE)
        if state.global_step == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


class Timed:
    """Adds up what a run spends in the events of a callback, whatever else the machine does."""

    def __init__(self, callback: Any) -> None:
        self.seconds = 0.0
        for name in [name for name in dir(callback) if name.startswith("on_")]:
            setattr(callback, name, self.wrap(getattr(callback, name)))

    def wrap(self, listener: Any) -> Any:
        def listen(*args: Any, **kwargs: Any) -> Any:
            begun = time.perf_counter()
            answer = listener(*args, **kwargs)
            self.seconds += time.perf_counter() - begun
            return answer

        return listen


def train(folder: str, tracker: str, kill_at: str) -> None:
    """Train from the newest checkpoint and leave weights, history and seconds beside it."""
    settings = {"max_steps": NUM_STEPS, "logging_steps": 1, "eval_steps": 5, "save_steps": 10}
    strategies = {"eval_strategy": "steps", "save_strategy": "steps", "learning_rate": 0.05}
    workers = {"dataloader_num_workers": 2} if tracker == "workers" else {}
    args = tiny.arguments(folder, **settings, **strategies, **workers)
    data = tiny.regression_data()
    callback = TRACKERS[tracker]() if TRACKERS[tracker] else TrainerCallback()
    timed = Timed(callback)
    options = {"train_dataset": data, "eval_dataset": data[:8], "callbacks": [Pace(int(kill_at)), callback]}
    trainer = Trainer(tiny.Regression(), args, **options)
    begun = time.monotonic()
    trainer.train(resume_from_checkpoint="auto")
    outcome = {
        "weights": [parameter.item() for parameter in trainer.model.parameters()],
        "history": trainer.state.log_history,
        "seconds": time.monotonic() - begun,
        "waited": timed.seconds,
        "ended": time.time(),
    }
    Path(folder, "outcome.json").write_text(json.dumps(outcome))


def main() -> None:
    """Fork a leg per line."""
    for line in sys.stdin:
        folder, tracker, kill_at = line.split()
        child = os.fork()
        if child == 0:
            descriptor = os.open(Path(folder, "stderr.txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            train(folder, tracker, kill_at)
            return
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), time.time(), flush=True)


if __name__ == "__main__":
    main()
