"""Trackers that raise, hang, lose their server or die with the run, in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from footplate.integrations.base import OPEN_WAIT
from footplate.integrations.journal import JOURNAL_NAME, last_run, read_events
from footplate.integrations.replay import replay_run
from footplate.integrations.tensorboard import TensorBoardCallback

LEGS = Path(__file__).with_name("tracker_legs.py")
Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Call it with a folder, a tracker and perhaps the step of a kill; it gives the outcome of that leg."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    server = subprocess.Popen([sys.executable, str(LEGS)], text=True, env=variables, **pipes)
    assert server.stdin is not None
    assert server.stdout is not None

    def run_leg(folder: Path, tracker: str, kill_at: int = 0) -> dict[str, Any]:
        print(folder, tracker, kill_at, file=server.stdin, flush=True)
        code, left = server.stdout.readline().split()
        stderr = (folder / "stderr.txt").read_text()
        assert int(code) == (-signal.SIGKILL if kill_at else 0), stderr[-3000:]
        if kill_at:
            return {}
        outcome = json.loads((folder / "outcome.json").read_text())
        return {**outcome, "stderr": stderr, "leaving": float(left) - outcome["ended"]}

    yield run_leg
    server.communicate(timeout=60)


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
def plain(run, tmp_path_factory):
    """A run without trackers."""
    return run(tmp_path_factory.mktemp("plain"), "none")


@pytest.fixture(scope="module")
def undisturbed(run, tmp_path_factory):
    """What TensorBoard shows of a run that nothing happens to."""
    folder = tmp_path_factory.mktemp("healthy")
    run(folder, "healthy")
    return curves_of(folder)


TROUBLES = (
    "raises_always",
    pytest.param("raises_once", marks=pytest.mark.slow),
    pytest.param("blocks", marks=pytest.mark.slow),
    pytest.param("blocks_at_open", marks=pytest.mark.slow),
    "served",
)


@pytest.mark.parametrize("trouble", TROUBLES)
def test_training_does_not_feel_a_tracker_in_trouble(run, tmp_path, plain, undisturbed, trouble):
    outcome = run(tmp_path, trouble)
    print({name: round(outcome[name], 2) for name in ("seconds", "waited", "leaving")}, plain["seconds"])
    assert outcome["weights"] == plain["weights"]
    assert timeless(outcome["history"]) == timeless(plain["history"])
    assert journal_of(tmp_path) == outcome["history"]
    # two of them at the end, for what might still arrive, and at the start a few until it is open
    assert outcome["waited"] < (OPEN_WAIT + 2.5 if trouble == "blocks_at_open" else 4.0)
    assert outcome["seconds"] < 2 * plain["seconds"] + 5  # beside whatever else the machine does
    assert outcome["leaving"] < 30  # and never the sixty that it would block
    if trouble != "raises_once":
        name = "served" if trouble == "served" else "tensorboard"
        assert f"footplate sync {tmp_path} --to {name}" in outcome["stderr"]
        replay_run(tmp_path, TensorBoardCallback())
    assert curves_of(tmp_path) == undisturbed
    assert replay_run(tmp_path, TensorBoardCallback()).num_sent == 0
    if trouble == "served":  # what the server had when it was killed is a beginning without holes
        served = [json.loads(line) for line in (tmp_path / "served.jsonl").read_text().splitlines()]
        assert sorted({values["step"] for values in served}) == list(range(1, 20))


def test_workers_that_are_forks_of_the_run_send_nothing_of_their_own(run, tmp_path, plain, undisturbed):
    outcome = run(tmp_path, "workers")
    assert outcome["weights"] == plain["weights"]
    assert curves_of(tmp_path) == undisturbed


def test_a_run_that_is_killed_twice_is_one_run_with_every_point_once(run, tmp_path, plain, undisturbed):
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
