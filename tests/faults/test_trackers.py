"""Trackers that raise, hang, lose their server or die with the run, in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

sys.path.insert(0, str(Path(__file__).parents[1]))  # this file is also the script that it runs

import tiny
from footplate import Trainer, TrainerCallback
from footplate.integrations.base import TrackerCallback
from footplate.integrations.journal import JOURNAL_NAME, last_run, read_events
from footplate.integrations.replay import replay_run
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


def train(folder: str, tracker: str, kill_at: str) -> None:
    """Train from the newest checkpoint and leave weights, history and seconds beside it."""
    settings = {"max_steps": NUM_STEPS, "logging_steps": 1, "eval_steps": 5, "save_steps": 10}
    strategies = {"eval_strategy": "steps", "save_strategy": "steps", "learning_rate": 0.05}
    workers = {"dataloader_num_workers": 2} if tracker == "workers" else {}
    args = tiny.arguments(folder, **settings, **strategies, **workers)
    data = tiny.regression_data()
    callbacks = [Pace(int(kill_at)), *([TRACKERS[tracker]()] if TRACKERS[tracker] else [])]
    trainer = Trainer(tiny.Regression(), args, train_dataset=data, eval_dataset=data[:8], callbacks=callbacks)
    begun = time.monotonic()
    trainer.train(resume_from_checkpoint="auto")
    seconds = time.monotonic() - begun
    weights = [parameter.item() for parameter in trainer.model.parameters()]
    outcome = {"weights": weights, "history": trainer.state.log_history, "seconds": seconds}
    Path(folder, "outcome.json").write_text(json.dumps({**outcome, "ended": time.time()}))


def run(folder: Path, tracker: str, kill_at: int = 0) -> dict[str, Any]:
    """One leg; its outcome, what it wrote to the standard error, and how long Python took to leave."""
    command = [sys.executable, __file__, str(folder), tracker, str(kill_at)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120)
    left = time.time()
    assert finished.returncode == (-signal.SIGKILL if kill_at else 0), finished.stderr[-3000:]
    if kill_at:
        return {}
    outcome = json.loads((folder / "outcome.json").read_text())
    return {**outcome, "stderr": finished.stderr, "leaving": left - outcome["ended"]}


def timeless(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in entry.items() if not key.endswith(("runtime", "per_second"))}
        for entry in history
    ]


def journal_of(folder: Path) -> list[dict[str, Any]]:
    """The log history as the journal has it."""
    events = last_run(read_events(folder / JOURNAL_NAME))
    return [{**event["logs"], "step": event["step"]} for event in events if event["kind"] == "log"]


def curves_of(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows, of which there must be one run; without the clock's values."""
    (found,) = {file.parent for file in folder.rglob("events.out.tfevents.*")}
    events = EventAccumulator(str(found), size_guidance={"scalars": 0}).Reload()
    tags = [tag for tag in events.Tags()["scalars"] if not tag.endswith(("runtime", "per_second"))]
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run without trackers."""
    return run(tmp_path_factory.mktemp("plain"), "none")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What TensorBoard shows of a run that nothing happens to."""
    folder = tmp_path_factory.mktemp("healthy")
    run(folder, "healthy")
    return curves_of(folder)


@pytest.mark.parametrize("trouble", [name for name in TRACKERS if name not in ("none", "healthy")])
def test_training_does_not_feel_a_tracker_in_trouble(tmp_path, plain, undisturbed, trouble):
    outcome = run(tmp_path, trouble)
    print(f"{trouble}: {outcome['seconds'] - plain['seconds']:+.2f} s, {outcome['leaving']:.1f} s to leave")
    assert outcome["weights"] == plain["weights"]
    assert timeless(outcome["history"]) == timeless(plain["history"])
    assert journal_of(tmp_path) == outcome["history"]
    assert outcome["seconds"] < plain["seconds"] + 2.5
    assert outcome["leaving"] < 15
    if trouble not in ("raises_once", "workers"):
        name = "served" if trouble == "served" else "tensorboard"
        assert f"footplate sync {tmp_path} --to {name}" in outcome["stderr"]
        replay_run(tmp_path, TensorBoardCallback())
    assert curves_of(tmp_path) == undisturbed
    assert replay_run(tmp_path, TensorBoardCallback()).num_sent == 0


def test_a_server_that_was_killed_had_a_beginning_without_holes(tmp_path):
    run(tmp_path, "served")
    steps = [json.loads(line)["step"] for line in (tmp_path / "served.jsonl").read_text().splitlines()]
    assert sorted(set(steps)) == list(range(1, 20))
    assert steps == sorted(steps)


def test_a_run_that_is_killed_twice_is_one_run_with_every_point_once(tmp_path, plain, undisturbed):
    run(tmp_path, "healthy", kill_at=13)
    run(tmp_path, "healthy", kill_at=29)
    outcome = run(tmp_path, "healthy")
    assert outcome["weights"] == plain["weights"]
    events = list(read_events(tmp_path / JOURNAL_NAME))
    begins = [event for event in events if event["kind"] == "begin"]
    assert [event["first_step"] for event in begins] == [0, 10, 20]
    assert len({event["run_id"] for event in begins}) == 1
    shown = curves_of(tmp_path)
    assert shown == undisturbed
    for tag in ("train/loss", "eval/loss"):
        steps = [step for step, _ in shown[tag]]
        assert steps == sorted(set(steps))
    assert journal_of(tmp_path) == outcome["history"]
    assert timeless(journal_of(tmp_path)) == timeless(plain["history"])


if __name__ == "__main__":
    train(*sys.argv[1:])
