"""The loop that people write by hand."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader

from evaluation.workload import Rows, describe, join, measure, read_settings

settings, model, collate = read_settings()


def evaluate(rows: Rows) -> dict[str, float]:
    """Predict each batch, keep it as an array, join all of them at the end."""
    model.eval()
    predictions, labels, losses = [], [], []
    with torch.no_grad():
        for batch in DataLoader(rows, batch_size=settings.batch_size, collate_fn=collate):
            outputs = model(**batch)
            losses.append(outputs["loss"])
            predictions.append(outputs["logits"].numpy())
            labels.append(batch["labels"].numpy())
    loss = torch.stack(losses).mean().item()
    return describe(join(predictions, len(rows)), join(labels, len(rows))) | {"loss": loss}


measure(settings, evaluate)
