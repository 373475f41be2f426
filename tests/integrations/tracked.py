"""A small run with everything that a tracker hears of, in one process or killed and resumed in two."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tiny
from footplate import Trainer, TrainerCallback

TESTS = Path(__file__).parents[1]
NUM_STEPS, EVERY = 8, 2
TIMES = ("eval/runtime", "eval/samples_per_second", "eval/steps_per_second")  # an evaluation made again
SAMPLES = [
    {"input": "x = 1", "target": "5", "prediction": "4.7"},
    {"input": "x = 2", "target": "7", "prediction": "<b>6.9</b>"},
]


class Config:
    """What a model says about itself."""

    def to_dict(self) -> dict[str, Any]:
        return {"hidden_size": 2, "nested": {"name": "line"}}


def build_tracked_trainer(folder: Path, callbacks: list[Any], **settings: Any) -> Trainer:
    """A trainer of a small regression that logs, evaluates and saves every other update."""
    model = tiny.Regression()
    model.config = Config()
    defaults: dict[str, Any] = {
        "max_steps": NUM_STEPS,
        "per_device_train_batch_size": 4,
        "logging_steps": 1,
        "eval_strategy": "steps",
        "eval_steps": EVERY,
        "save_strategy": "steps",
        "save_steps": EVERY,
        "learning_rate": 0.05,
        "run_name": "a-line",
    }
    args = tiny.arguments(folder, **{**defaults, **settings})
    data = tiny.regression_data()
    return Trainer(model=model, args=args, train_dataset=data, eval_dataset=data[:8], callbacks=callbacks)


def run_all(folder: Path, callbacks: list[Any], **settings: Any) -> Trainer:
    """Train with evaluations, show samples, evaluate, and predict under a heading of its own."""
    trainer = build_tracked_trainer(folder, callbacks, **settings)
    trainer.train(resume_from_checkpoint="auto")
    trainer._event("on_samples", samples=SAMPLES, source="eval")
    trainer.predict(tiny.regression_data()[:8], metric_key_prefix="ood")
    return trainer


def expected_points(history: list[dict[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """The curves that the log history says there must be, by the names trackers show."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for entry in history:
        for key, value in entry.items():
            heading = f"eval/{key.removeprefix('eval_')}" if key.startswith("eval_") else f"train/{key}"
            if key != "step":
                curves.setdefault(heading, []).append((entry["step"], value))
    del curves["train/epoch"]  # logged twice where an evaluation falls on the same update
    return curves


@dataclass
class Outcome:
    """What a run that was killed and resumed says about itself."""

    history: list[dict[str, Any]]
    run_id: str
    service_id: str | None


def assert_no_gap_and_no_double(curves: dict[str, list[tuple[int, float]]], outcome: Outcome) -> None:
    """Each curve of the log history is there, point for point, and the prediction under its own heading."""
    expected = expected_points(outcome.history)
    assert {"train/loss", "train/grad_norm", "train/learning_rate", "eval/loss"} <= set(expected)
    assert len(expected["train/loss"]) == NUM_STEPS
    for key, points in expected.items():
        if key not in TIMES:
            assert curves[key] == points, key
        assert [step for step, _ in curves[key]] == [step for step, _ in points], key
    assert [step for step, _ in curves["ood/loss"]] == [NUM_STEPS]


class Killer(TrainerCallback):
    """Ends the process as the kernel would, when the service has written some of the run, not all."""

    def __init__(self, tracker: Any, step: int) -> None:
        self.tracker, self.step = tracker, step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step - 2:
            self.tracker.wait_for_service(60)
            time.sleep(1.5)
        elif state.global_step == self.step:
            self.tracker.wait_for_service(60)
            os.kill(os.getpid(), signal.SIGKILL)


def kill_and_resume(module: str, name: str, folder: Path, environment: dict[str, str]) -> Outcome:
    """Two processes: one is killed after the fifth update, the other goes on from the fourth to the end."""
    for kill_at, code in ((5, -signal.SIGKILL), (0, 0)):
        command = [sys.executable, __file__, module, name, str(folder), str(kill_at)]
        paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        variables = {**os.environ, **environment, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=200)
        assert done.returncode == code, done.stderr[-3000:]
    return Outcome(**json.loads(Path(folder, "outcome.json").read_text()))


def run_code(code: str, environment: dict[str, str]) -> str:
    """What a program prints that has the tests' helpers at hand, in a process of its own."""
    paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    variables = {**os.environ, **environment, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def _run_leg(module: str, name: str, folder: str, kill_at: str) -> None:
    tracker = getattr(importlib.import_module(module), name)()
    callbacks = [tracker, *([Killer(tracker, int(kill_at))] if int(kill_at) else [])]
    trainer = run_all(Path(folder), callbacks)
    assert tracker.finish(60), tracker.guard.error
    outcome = Outcome(trainer.state.log_history, trainer._current_run.identity.run_id, tracker.service_id)
    Path(folder, "outcome.json").write_text(json.dumps(asdict(outcome)))


if __name__ == "__main__":
    _run_leg(*sys.argv[1:])
