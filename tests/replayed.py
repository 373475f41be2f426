"""Runs to be made again: everything in them that draws random numbers, and models that fail when told."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import tiny
from augmented import AugmentedRows
from footplate import Trainer, default_data_collator

NUM_ROWS = 29


class Noisy(nn.Module):
    """A classifier with dropout, which gives NaN in a layer for one row of one update if it is told to."""

    def __init__(self, fails_at: tuple[int, str, int] | None = None, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3))
        self.second = nn.Linear(8, 3)
        self.fails_at = fails_at  # update, layer, place in the batch
        self.register_buffer("num_updates", torch.zeros((), dtype=torch.long))  # a checkpoint holds it
        if fails_at is not None:
            self.get_submodule(fails_at[1]).register_forward_hook(self._fail)

    def _fail(self, module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        step, _, place = self.fails_at
        if self.training and int(self.num_updates) == step:
            factor = torch.ones(len(output), 1)
            factor[place] = float("nan")
            output = output * factor
        return output

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        if self.training:
            self.num_updates += 1
        logits = self.second(self.first(x))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Masked(AugmentedRows):
    """Rows with noise, one of which is damaged."""

    def __init__(self, num_rows: int, damaged: int) -> None:
        super().__init__(num_rows)
        self.damaged = damaged

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = super().__getitem__(index)
        return {**row, "x": row["x"] * float("inf")} if index == self.damaged else row


def noisy_collate(samples: list[Any]) -> Any:
    """A batch with noise, as collators that mask draw it."""
    batch = default_data_collator(samples)
    batch["x"] = batch["x"] + random.random() + float(np.random.rand()) + torch.rand(())
    return batch


def builder(
    folder: Any,
    model: Callable[[], nn.Module] = Noisy,
    data: Any = None,
    collate: Any = noisy_collate,
    **settings: Any,
) -> Any:
    """A function that builds the Trainer of a run in `folder`, the same one every time."""

    def build() -> Trainer:
        options: dict[str, Any] = {
            "max_steps": 20,
            "per_device_train_batch_size": 3,
            "logging_steps": 1,
            "learning_rate": 0.01,
            "save_strategy": "steps",
            "save_steps": 4,
            **settings,
        }
        return Trainer(
            model(),
            tiny.arguments(folder, **options),
            train_dataset=AugmentedRows(NUM_ROWS) if data is None else data,
            eval_dataset=AugmentedRows(7),
            data_collator=collate,
        )

    return build


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file of a folder: its bytes, and when it was changed."""
    files = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}
