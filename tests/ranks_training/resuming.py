"""Jobs that are cut short and go on, with as many processes as before or with another number."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import IterableDataset

import footplate
from augmented import AugmentedRows, AugmentedStream, augment
from ranks_training import small
from ranks_training.equal import UNEVEN

NUM_ROWS, MAX_STEPS, CUT_AT = 29, 12, 7


class Bare(IterableDataset):
    """A stream that can only be read from its beginning."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (augment(index, NUM_ROWS) for index in range(NUM_ROWS))


KINDS: dict[str, Any] = {
    "rows": lambda: AugmentedRows(NUM_ROWS),
    "stream": lambda: AugmentedStream(NUM_ROWS),
    "bare": Bare,
}


class Terminate(footplate.TrainerCallback):
    """Sends SIGTERM to one rank alone, in the middle of an update."""

    def __init__(self, step: int, rank: int) -> None:
        self.step, self.rank = step, rank

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step and args.process_index == self.rank:
            os.kill(os.getpid(), signal.SIGTERM)


class Unheard(small.Recorder):
    """Sends SIGTERM to the last rank in its loss, where no callback listens to updates."""

    def compute_loss(self, model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        if self.state.global_step == 3 and self.args.process_index == self.args.world_size - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.05)  # the ranks ask each other a few times in a second
        return super().compute_loss(model, inputs, *args, **kwargs)


def noisy_collate(rows: list[Any]) -> Any:
    """A batch with noise, as masking collators draw it."""
    batch = small.collate(rows)
    batch["x"] = batch["x"] + random.random() + float(np.random.rand()) + torch.rand(())
    return batch


def build(
    folder: Path, kind: str, callbacks: Any = (), trainer: Any = small.Recorder, **settings: Any
) -> Any:
    """A trainer of everything that draws random numbers: dropout, data, collator."""
    options: Any = {
        "max_steps": MAX_STEPS,
        "per_device_train_batch_size": 3,
        "gradient_accumulation_steps": 2,
        "logging_steps": 1,
        "learning_rate": 0.05,
        "keep_columns": ["id"],
        "eval_strategy": "steps",
        "eval_steps": 5,
        "per_device_eval_batch_size": 4,
        **settings,
    }
    return trainer(
        small.Classifier(dropout=0.3),
        small.arguments(folder, **options),
        train_dataset=KINDS[kind](),
        eval_dataset=small.numbers(11),
        data_collator=noisy_collate,
        compute_metrics=lambda prediction: {"sum": float(prediction.predictions.sum())},
        callbacks=list(callbacks),
    )


def describe(trainer: Any) -> dict[str, Any]:
    """The end of a run, with the state of its optimizer."""
    state = trainer.optimizer.state_dict()["state"]
    moments = {str(number): small.plain(dict(values)) for number, values in state.items()}
    return {**small.describe(trainer), "optimizer": moments}


def run_whole(folder: Path, kind: str, **settings: Any) -> Any:
    trainer = build(folder, kind, **settings)
    trainer.train()
    return describe(trainer)


def run_cut(folder: Path, kind: str, trainer: Any) -> Any:
    """The exit code of a run that is cut short, what it saw, and the files that it left."""
    try:
        trainer.train()
    except SystemExit as error:
        left = sorted(folder.glob("checkpoint-*"))
        files = {path.name: sorted(file.name for file in path.iterdir()) for path in left}
        return {**describe(trainer), "code": error.code, "files": files}
    raise AssertionError("the run was not stopped")


def run_on(folder: Path, kind: str, **settings: Any) -> Any:
    trainer = build(folder, kind, **settings)
    trainer.train(resume_from_checkpoint=True)
    return describe(trainer)


def place(folder: Path, name: str) -> Path:
    """The folder of another job of the same launch, or of an earlier one."""
    return folder.parent / name


def rows_whole(folder: Path) -> Any:
    return run_whole(folder, "rows")


def rows_cut(folder: Path) -> Any:
    return run_cut(folder, "rows", build(folder, "rows", [Terminate(CUT_AT, rank=1)]))


def rows_on(folder: Path) -> Any:
    return run_on(place(folder, "resuming.rows_cut"), "rows")


def stream_whole(folder: Path) -> Any:
    return run_whole(folder, "stream")


def stream_cut(folder: Path) -> Any:
    return run_cut(folder, "stream", build(folder, "stream", [Terminate(CUT_AT, rank=0)]))


def stream_on(folder: Path) -> Any:
    return run_on(place(folder, "resuming.stream_cut"), "stream")


def bare_whole(folder: Path) -> Any:
    return run_whole(folder, "bare")


def bare_cut(folder: Path) -> Any:
    return run_cut(folder, "bare", build(folder, "bare", [Terminate(CUT_AT, rank=1)]))


def bare_on(folder: Path) -> Any:
    return run_on(place(folder, "resuming.bare_cut"), "bare")


def unheard_whole(folder: Path) -> Any:
    return run_whole(folder, "rows", max_steps=60, eval_steps=50)


def unheard_cut(folder: Path) -> Any:
    trainer = build(folder, "rows", trainer=Unheard, max_steps=60, eval_steps=50)
    return run_cut(folder, "rows", trainer)


def unheard_on(folder: Path) -> Any:
    return run_on(place(folder, "resuming.unheard_cut"), "rows", max_steps=60, eval_steps=50)


# ---- with another number of processes ----

SAVED = {
    "save_strategy": "steps",
    "save_steps": 3,
    "eval_strategy": "no",
    "num_train_epochs": 2,
    "max_steps": -1,
}


def train_saved(
    folder: Path, kind: str, checkpoint: Path | None = None, batch: int = 6, **settings: Any
) -> Any:
    """A run of 24 rows with checkpoints, `batch` rows in a micro-batch of all processes together."""
    options: Any = {
        **SAVED,
        "per_device_train_batch_size": batch // small.NUM_RANKS,
        "max_steps": 8,
        **settings,
    }
    options["gradient_accumulation_steps"] = 1
    args = small.arguments(folder, keep_columns=["id"], **options)
    data = small.numbers(24) if kind == "rows" else AugmentedStream(24)
    trainer = small.Recorder(small.Classifier(), args, train_dataset=data, data_collator=small.collate)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    return small.describe(trainer)


def other_checkpoint(folder: Path, name: str) -> Path:
    """What the launch with another number of processes left."""
    other = {"one": "two", "two": "one"}[folder.parent.name]
    return folder.parents[1] / other / f"resuming.{name}" / "checkpoint-3"


def rows_saved(folder: Path) -> Any:
    return train_saved(folder, "rows")


def stream_saved(folder: Path) -> Any:
    return train_saved(folder, "stream")


def rows_taken_over(folder: Path) -> Any:
    return train_saved(folder, "rows", other_checkpoint(folder, "rows_saved"))


def stream_taken_over(folder: Path) -> Any:
    return train_saved(folder, "stream", other_checkpoint(folder, "stream_saved"))


def rows_recut(folder: Path) -> Any:
    return train_saved(folder, "rows", other_checkpoint(folder, "rows_saved"), 4, accelerator_config=UNEVEN)
