"""Trials of a sweep in a process of their own; says what it saw in a line of JSON at the end."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import wandb
from wandb.agents.pyagent import Agent

import tiny
from footplate import Trainer, TrainerCallback
from footplate.integrations.wandb import WandbCallback
from footplate.search.outcomes import COMPLETE, FAILED, PRUNED, Outcome
from footplate.search.record import TrialRecord
from footplate.search.studies import Asked
from footplate.search.wandb_study import WandbStudy
from footplate.search.wandb_sweep import build_sweep

Agent.HEARTBEAT_SLEEP_SECONDS = 0.2  # of the real one: 5


class Reports(TrainerCallback):
    """Reports each evaluation, and ends the training that W&B wants to stop."""

    def __init__(self, study: WandbStudy, number: int, delay: float) -> None:
        self.study, self.number, self.delay = study, number, delay
        self.is_stopped = False

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any, **kwargs: Any) -> None:
        time.sleep(self.delay)
        self.is_stopped |= self.study.report(self.number, [metrics["eval_loss"]], state.global_step)
        control.should_training_stop |= self.is_stopped


def train(folder: Path, study: WandbStudy, asked: Asked, tracker: WandbCallback, delay: float) -> Outcome:
    """One trial, with a real Trainer and the tracker."""
    number, name = asked.trial.number, f"run-{asked.trial.run_id}"
    reports = Reports(study, number, delay)
    args = tiny.arguments(
        folder / name,
        num_train_epochs=1,
        per_device_train_batch_size=8,
        eval_strategy="steps",
        eval_steps=2,
        logging_steps=2,
        report_to=[],
        **asked.values,
    )
    data = tiny.regression_data()
    trainer = Trainer(tiny.Regression(), args, train_dataset=data, eval_dataset=data[:8])
    trainer.add_callback(tracker)
    trainer.add_callback(reports)
    trainer.train()
    losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    state = PRUNED if reports.is_stopped else COMPLETE
    return Outcome(number, state, asked.trial.params, [min(losses)], trainer.state.global_step, name)


def main(folder: Path, told: dict[str, Any]) -> None:
    """Search as `told` says, and print what happened."""
    before = {name: value for name, value in os.environ.items() if name.startswith("WANDB_")}
    space, num_trials = told["space"], told["num_trials"]
    tracker, record = WandbCallback(), TrialRecord(str(folder), {})
    sweep = build_sweep(space, ["minimize"], told.get("metric"), "a-search")
    study = WandbStudy(sweep, record, num_trials, project="a-project", settle=tracker.wait_for_service)
    threads, error = set(), None
    try:
        while len(record.outcomes) < told.get("num_asked", num_trials) and (asked := study.ask()) is not None:
            number = asked.trial.number
            threads.add(threading.current_thread().name)
            outcome = train(folder, study, asked, tracker, told.get("delay", {}).get(str(number), 0.0))
            if number == told.get("raises_in"):
                raise MemoryError("no room for the model")
            if number == told.get("fails_in"):
                outcome = outcome.replace(state=FAILED)
            record.add(outcome)
            study.tell(outcome)
    except (MemoryError, RuntimeError) as found:
        error = repr(found)
    finally:
        began = time.monotonic()
        study.close()
    after = {name: value for name, value in os.environ.items() if name.startswith("WANDB_")}
    agents = [one.name for one in threading.enumerate() if one.name == "footplate-sweep"]
    seen = {
        "error": error,
        "threads": sorted(threads),
        "close_seconds": time.monotonic() - began,
        "is_environment_kept": before == after,
        "agents": agents,
        "open_run": wandb.run is not None,
        "sweep": study.sweep_id,
        "outcomes": [one.to_line() for one in record.outcomes],
    }
    print("SEEN", json.dumps(seen), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
