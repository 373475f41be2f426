"""Runs that log at every update and runs that never do, in turn: what a log costs above an update."""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from workloads import Row, build_classes, stack_rows

BATCH_SIZE = 8


class Start:
    """A collator that reads the CPU time when the updates that warm up are over."""

    def __init__(self, skip_steps: int) -> None:
        self.skip_steps, self.num_calls, self.began = skip_steps, 0, 0.0

    def __call__(self, rows: list[Row]) -> Row:
        if self.num_calls == self.skip_steps:
            self.began = time.process_time()
        self.num_calls += 1
        return stack_rows(rows)


def run(library: str, steps: int, skip_steps: int, logs: bool, output_dir: Path) -> float:
    """CPU seconds per update of one run, to the end of `train()`: the last page of the report included.

    Everything about logging is left at its default: the line, the checks, the journal and the report.
    """
    api: Any = importlib.import_module(library)
    torch.manual_seed(0)
    model, rows = build_classes(steps * BATCH_SIZE)
    clock = Start(skip_steps)
    args = api.TrainingArguments(
        str(output_dir),
        max_steps=steps,
        per_device_train_batch_size=BATCH_SIZE,
        logging_strategy="steps" if logs else "no",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
    )
    api.Trainer(model=model, args=args, data_collator=clock, train_dataset=rows).train()
    return (time.process_time() - clock.began) / (steps - skip_steps)


def main() -> None:
    """So many runs of each kind; seconds per update."""
    choices = json.loads(sys.argv[1])
    times: dict[str, list[float]] = {"quiet": [], "logging": []}
    for turn in range(-1, choices["turns"]):  # the first of each kind warms up
        for name in sorted(times, reverse=turn % 2 == 1):
            output_dir = Path(choices["output_dir"], f"{name}-{turn}")
            steps = choices["steps"] if turn >= 0 else choices["skip_steps"] + 10
            seconds = run(choices["library"], steps, choices["skip_steps"], name == "logging", output_dir)
            if turn >= 0:
                times[name].append(seconds)
    above = [noisy - quiet for noisy, quiet in zip(times["logging"], times["quiet"], strict=True)]
    print()  # the line with the figures begins a line of its own
    print(json.dumps(times | {"above": above}))


main()
