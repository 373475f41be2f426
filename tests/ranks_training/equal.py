"""Jobs whose result must not depend on the number of processes, at an equal batch of all together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ranks_training import small

UNEVEN = {"even_batches": False}


def train(folder: Path, num_rows: int, batch: int = 6, make: Any = small.numbers, **settings: Any) -> Any:
    """A run with `batch` rows in a micro-batch of all processes together."""
    model = small.Classifier() if make is small.numbers else small.Tagger()
    options = {"num_train_epochs": 2, "logging_steps": 1, "learning_rate": 0.05, **settings}
    size = batch // small.NUM_RANKS
    args = small.arguments(folder, per_device_train_batch_size=size, keep_columns=["id"], **options)
    trainer = small.Recorder(model, args, train_dataset=make(num_rows), data_collator=small.collate)
    trainer.train()
    return small.describe(trainer)


def whole(folder: Path) -> Any:
    return train(folder, 24)


def accumulated(folder: Path) -> Any:
    return train(folder, 24, gradient_accumulation_steps=3)


def uneven(folder: Path) -> Any:
    return train(folder, 29, accelerator_config=UNEVEN)


def uneven_accumulated(folder: Path) -> Any:
    """A single row is left for the last round, so one rank has none."""
    return train(folder, 25, accelerator_config=UNEVEN, gradient_accumulation_steps=2)


def dropped(folder: Path) -> Any:
    return train(folder, 29, dataloader_drop_last=True)


def items(folder: Path) -> Any:
    return train(folder, 24, make=small.ragged, loss_weighting="items", gradient_accumulation_steps=2)


def uneven_items(folder: Path) -> Any:
    return train(folder, 25, make=small.ragged, loss_weighting="items", accelerator_config=UNEVEN)


def stopped(folder: Path) -> Any:
    return train(folder, 24, max_steps=7)


def seldom_logged(folder: Path) -> Any:
    """Three updates come after the only log."""
    return train(folder, 24, logging_steps=5)
