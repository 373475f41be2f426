"""Jobs in which a rank raises, is killed, stands still, or disagrees with the others."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from torch import nn

import footplate
from footplate.checkpoint import publish
from ranks_training import resuming, small

SAVES: Any = {"save_strategy": "steps", "save_steps": 2}


def train(folder: Path, callbacks: Any = (), trainer: Any = small.Recorder, **settings: Any) -> Any:
    """A run that goes on by itself from what an earlier one left."""
    built = resuming.build(folder, "rows", callbacks, trainer, **{**SAVES, **settings})
    built.train(resume_from_checkpoint="auto")
    return {**resuming.describe(built), "seen": None, "first": min(built.seen, default=None)}


def undisturbed(folder: Path) -> Any:
    return train(folder)


def kill_once(folder: Path) -> None:
    """Kill this process, unless it was done before."""
    mark = folder.parent / f"{folder.name}.killed"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


class Kill(footplate.TrainerCallback):
    """Kills the last rank in the middle of an update, once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 7 and args.process_index == 1:
            kill_once(self.folder)


def killed_training(folder: Path) -> Any:
    return train(folder, [Kill(folder)])


def killed_saving(folder: Path) -> Any:
    """The rank that writes is killed when all files of a checkpoint are there, and before it is sealed."""
    seal = publish.seal

    def seal_or_die(staging: Any, final: Any, *args: Any, **kwargs: Any) -> None:
        if Path(final).name == "checkpoint-6":
            kill_once(folder)
        seal(staging, final, *args, **kwargs)

    publish.seal = seal_or_die
    try:
        return train(folder)
    finally:
        publish.seal = seal


class Raising(small.Recorder):
    """Raises an error of the user's own on the last rank."""

    def compute_loss(self, model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        if self.state.global_step == 4 and self.args.process_index == 1:
            print(f"raised at {time.time()}", flush=True)
            raise ValueError("the labels of this row are upside down")
        return super().compute_loss(model, inputs, *args, **kwargs)


def raising(folder: Path) -> Any:
    return train(folder, trainer=Raising)


class Standing(small.Recorder):
    """Stands still for some seconds on the last rank."""

    def compute_loss(self, model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        if self.state.global_step == 4 and self.args.process_index == 1 and self.model.training:
            self.wait_for_nothing()
        return super().compute_loss(model, inputs, *args, **kwargs)

    def wait_for_nothing(self) -> None:
        time.sleep(3)


def standing(folder: Path) -> Any:
    return train(folder, trainer=Standing, hang_timeout=2)


def disagreeing(folder: Path) -> Any:
    """What each rank is told if arguments, rows or code differ."""
    found = {}
    cases: dict[str, Any] = {
        "arguments": {"learning_rate": 0.1 + small.RANK},
        "rows": {"rows": 29 + small.RANK},
        "code": {"kind": (small.Recorder, Standing)[small.RANK]},
    }
    for name, case in cases.items():
        options = dict(case)
        kind, num_rows = options.pop("kind", small.Recorder), options.pop("rows", 29)
        args = small.arguments(folder, **options)
        data = small.numbers(num_rows)
        trainer = kind(small.Classifier(), args, train_dataset=data, data_collator=small.collate)
        try:
            trainer.train()
        except ValueError as error:
            found[name] = {"error": str(error), "step": trainer.state.global_step}
    return found


class Slow(footplate.TrainerCallback):
    """Makes updates slow until a file tells it to end."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        time.sleep(0.2)
        control.should_training_stop = Path(f"{args.output_dir}.end").exists()


def occupying(folder: Path) -> Any:
    return train(folder, [Slow()], max_steps=400, eval_steps=1000)
