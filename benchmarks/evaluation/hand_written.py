"""The loop that people write by hand."""

from __future__ import annotations

import numpy as np
import torch
from torch.utils.data import DataLoader

from evaluation.workload import Weight, collate, mean_accuracy, now, print_result, read_settings

settings, model, rows = read_settings()
weight, start = Weight(), now()
model.eval()
predictions, labels, losses = [], [], []
with torch.no_grad():
    for batch in DataLoader(rows, batch_size=settings.batch_size, collate_fn=collate):
        outputs = model(**batch)
        losses.append(outputs["loss"])
        predictions.append(outputs["logits"].numpy())
        labels.append(batch["labels"].numpy())
loss = torch.stack(losses).mean().item()


def join(parts: list[np.ndarray]) -> np.ndarray:
    """All batches in one array, filled up with -100."""
    if settings.kind == "fixed":
        return np.concatenate(parts)
    width = max(part.shape[1] for part in parts)
    joined = np.full((settings.rows, width, *parts[0].shape[2:]), -100, dtype=parts[0].dtype)
    position = 0
    for part in parts:
        joined[position : position + len(part), : part.shape[1]] = part
        position += len(part)
    return joined


joined, joined_labels = join(predictions), join(labels)
accuracy = mean_accuracy(joined, joined_labels)
print_result(settings, now() - start, weight.stop(), accuracy, joined.nbytes + joined_labels.nbytes)
