"""Runs to report on, and a real browser to look at the pages with."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from browser import chromium  # noqa: F401 (a fixture)

HOSTILE = "<script>document.title = 'pwned'</script><img src=x onerror=\"document.title = 'pwned'\">"


class WrittenRun:
    """Writes a journal line by line, as a run would have.

    Args:
        folder: Where it goes.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.path, self.time = folder, folder / "events.jsonl", 1_700_000_000.0

    def write(self, kind: str, seconds_later: float = 0.0, **values: Any) -> None:
        """Append an event."""
        self.time += seconds_later
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "time": self.time, **values}) + "\n")

    def begin(self, run_id: str = "first", first_step: int = 0, max_steps: int = 100, **values: Any) -> None:
        """Begin a run, or its next leg."""
        settings = {"learning_rate": 0.002, "seed": 42, "hub_token": "<HUB_TOKEN>", "warmup_steps": 0}
        values = {"name": self.folder.name, "settings": {**settings, **values.pop("settings", {})}, **values}
        self.write("begin", run_id=run_id, first_step=first_step, max_steps=max_steps, **values)

    def log(self, step: int, seconds: dict[str, float] | None = None, **logs: Any) -> None:
        """One log, a second after the last event."""
        prefixes = ["eval", "test"]
        values = {"logs": logs, "prefixes": prefixes, "seconds": seconds or {}}
        self.write("log", 1.0, step=step, epoch=step / 50, **values)

    def train(self, first: int = 1, last: int = 100) -> None:
        """The logs of some updates, with an evaluation and samples after every 20."""
        for step in range(first, last + 1):
            parts = {"data": 0.1, "forward": 0.3, "backward": 0.5, "optimizer": 0.1}
            self.log(step, parts, loss=2 / math.sqrt(step), grad_norm=1.5, learning_rate=1e-3)
            if step % 20 == 0:
                self.log(step, {"evaluation": 1.0}, eval_loss=2.5 / math.sqrt(step), eval_f1=step / 2)
                rows = [
                    {"input": f"row of {step}", "target": "a", "prediction": "a", "correct": True},
                    {"input": HOSTILE, "target": "a", "prediction": "b", "correct": False},
                ]
                self.write("samples", step=step, source="eval", rows=rows)
                self.write("save", step=step, folder=f"checkpoint-{step}", best_step=step, best_metric=0.1)

    def end(self, step: int = 100) -> None:
        """Sum up, and end."""
        self.log(step, train_runtime=100.0, train_steps_per_second=1.0, total_flos=0.0, train_loss=0.5)
        self.write("end", step=step, metrics={})


@pytest.fixture
def write_run() -> type[WrittenRun]:
    """Makes runs by their folders."""
    return WrittenRun


@pytest.fixture
def written(tmp_path) -> WrittenRun:
    """A journal that is still empty."""
    return WrittenRun(tmp_path / "run")


@pytest.fixture
def finished(written) -> WrittenRun:
    """A run that is over."""
    written.begin()
    written.train()
    written.write("warning", step=3, level="WARNING", message=f"Beware of {HOSTILE}")
    written.end()
    return written
