"""A small run with everything that a tracker hears of, and one that is killed and resumed in real processes."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import tiny
from footplate import Trainer, TrainerCallback

TESTS = Path(__file__).parents[1]
NUM_STEPS, EVERY = 8, 2
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
    trainer.train()
    trainer._event("on_samples", samples=SAMPLES, source="eval")
    trainer.predict(tiny.regression_data()[:8], metric_key_prefix="ood")
    return trainer


def expected_points(trainer: Trainer) -> dict[str, list[tuple[int, float]]]:
    """The curves that the log history says there must be, by the names trackers show."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for entry in trainer.state.log_history:
        for key, value in entry.items():
            heading = f"eval/{key.removeprefix('eval_')}" if key.startswith("eval_") else f"train/{key}"
            if key != "step":
                curves.setdefault(heading, []).append((entry["step"], value))
    del curves["train/epoch"]  # logged twice where an evaluation falls on the same update
    return curves


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


def kill_and_resume(module: str, name: str, folder: Path, environment: dict[str, str]) -> None:
    """Two processes: one is killed after the fifth update, the other resumes from the fourth and ends."""
    for kill_at, code in ((5, -signal.SIGKILL), (0, 0)):
        command = [sys.executable, __file__, module, name, str(folder), str(kill_at)]
        paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        variables = {**os.environ, **environment, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=200)
        assert done.returncode == code, done.stderr[-3000:]


def _run_leg(module: str, name: str, folder: str, kill_at: str) -> None:
    tracker = getattr(importlib.import_module(module), name)()
    callbacks = [tracker, *([Killer(tracker, int(kill_at))] if int(kill_at) else [])]
    trainer = build_tracked_trainer(Path(folder), callbacks)
    trainer.train(resume_from_checkpoint="auto")
    assert tracker.finish(60)


if __name__ == "__main__":
    _run_leg(*sys.argv[1:])
