"""Evaluation by Lightning: the module keeps its batches and joins them at the end."""

from __future__ import annotations

import logging
from typing import Any

import lightning
import numpy as np
import torch
from torch.utils.data import DataLoader

from evaluation.workload import Weight, collate, mean_accuracy, now, print_result, read_settings

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
settings, model, rows = read_settings()


class Module(lightning.LightningModule):
    """The model, and what it answered."""

    def __init__(self) -> None:
        super().__init__()
        self.model = model
        self.kept: list[tuple[np.ndarray, np.ndarray]] = []
        self.result: tuple[float, int] = (0.0, 0)

    def test_step(self, batch: Any, index: int) -> None:
        """One batch."""
        outputs = self.model(**batch)
        self.log("loss", outputs["loss"], batch_size=len(batch["labels"]))
        self.kept.append((outputs["logits"].numpy(), batch["labels"].numpy()))

    def on_test_epoch_end(self) -> None:
        """All batches, filled up and joined."""
        width = max(logits.shape[1] for logits, _ in self.kept)
        parts = list(zip(*self.kept, strict=True))
        if settings.kind == "ragged":
            parts = [[fill_up(part, width) for part in kind] for kind in parts]
        predictions, labels = (np.concatenate(kind) for kind in parts)
        self.result = mean_accuracy(predictions, labels), predictions.nbytes + labels.nbytes


def fill_up(part: np.ndarray, width: int) -> np.ndarray:
    """A batch as wide as the widest."""
    missing = [(0, 0)] * part.ndim
    missing[1] = (0, width - part.shape[1])
    return np.pad(part, missing, constant_values=-100)


module = Module()
trainer = lightning.Trainer(
    accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False
)
weight, start = Weight(), now()
with torch.no_grad():
    trainer.test(module, DataLoader(rows, settings.batch_size, collate_fn=collate), verbose=False)
print_result(settings, now() - start, weight.stop(), *module.result)
