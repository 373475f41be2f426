"""Evaluation by Lightning: the module keeps its batches and joins them at the end."""

from __future__ import annotations

import logging
from typing import Any

import lightning
import numpy as np
from torch.utils.data import DataLoader

from evaluation.workload import Rows, describe, join, measure, read_settings

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
settings, model, collate = read_settings()


class Module(lightning.LightningModule):
    """The model, and what it answered."""

    def __init__(self) -> None:
        super().__init__()
        self.model = model
        self.predictions: list[np.ndarray] = []
        self.labels: list[np.ndarray] = []
        self.found: dict[str, float] = {}

    def test_step(self, batch: Any, index: int) -> None:
        """One batch."""
        outputs = self.model(**batch)
        self.log("loss", outputs["loss"], batch_size=len(batch["labels"]))
        self.predictions.append(outputs["logits"].numpy())
        self.labels.append(batch["labels"].numpy())

    def on_test_epoch_end(self) -> None:
        """All batches, filled up and joined."""
        num_rows = sum(map(len, self.labels))
        self.found = describe(join(self.predictions, num_rows), join(self.labels, num_rows))
        self.predictions, self.labels = [], []


def evaluate(rows: Rows) -> dict[str, float]:
    """One pass of `Trainer.test`."""
    loader = DataLoader(rows, settings.batch_size, collate_fn=collate)
    (metrics,) = trainer.test(module, loader, verbose=False)
    return module.found | {"loss": metrics["loss"]}


module = Module()
trainer = lightning.Trainer(
    accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False
)
measure(settings, evaluate)
