"""The yardstick: loops as somebody writes them who knows every fast path of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader

from workloads import Row, Settings

Collate = Callable[[list[Row]], Row]


def train(model: nn.Module, rows: Any, collate: Collate, settings: Settings) -> Iterator[None]:
    """Fused AdamW, foreach clipping, a parameter list made once; waits after each update."""
    model.train()
    parameters = list(model.parameters())
    loader = DataLoader(rows, batch_size=settings.batch_size, shuffle=True, collate_fn=collate)
    optimizer = torch.optim.AdamW(
        parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )
    scheduler = LambdaLR(optimizer, lambda step: max(0.0, 1.0 - step / settings.steps))
    for batch in loader:
        batch = {name: column.to("cpu") for name, column in batch.items()}
        model(**batch)["loss"].backward()
        torch.nn.utils.clip_grad_norm_(parameters, settings.max_grad_norm, foreach=True)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        yield


def evaluate(
    model: nn.Module, rows: Any, collate: Collate, batch_size: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """Predictions, labels and loss of rows of one width: each batch goes to its place in one array."""
    model.eval()
    predictions = labels = np.empty(0)
    losses, position = [], 0
    with torch.inference_mode():
        for batch in DataLoader(rows, batch_size=batch_size, collate_fn=collate):
            outputs = model(**batch)
            logits, answers = outputs["logits"].numpy(), batch["labels"].numpy()
            if position == 0:
                predictions = np.empty((len(rows), *logits.shape[1:]), dtype=logits.dtype)
                labels = np.empty((len(rows), *answers.shape[1:]), dtype=answers.dtype)
            end = position + len(logits)
            predictions[position:end] = logits
            labels[position:end] = answers
            losses.append(outputs["loss"])
            position = end
        return predictions, labels, torch.stack(losses).mean().item()


def predict_ragged(
    model: nn.Module, rows: Any, collate: Collate, batch_size: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """The same for rows of uneven length: batches are collected, then put into one array filled with -100."""
    model.eval()
    predictions, labels, losses = [], [], []
    with torch.inference_mode():
        for batch in DataLoader(rows, batch_size=batch_size, collate_fn=collate):
            outputs = model(**batch)
            predictions.append(outputs["logits"].numpy())
            labels.append(batch["labels"].numpy())
            losses.append(outputs["loss"])
        loss = torch.stack(losses).mean().item()
    return fill(predictions, len(rows)), fill(labels, len(rows)), loss


def fill(parts: list[np.ndarray], num_rows: int) -> np.ndarray:
    """All batches in one array as wide as the widest; what a row lacks is -100."""
    width = max(part.shape[1] for part in parts)
    joined = np.full((num_rows, width, *parts[0].shape[2:]), -100, dtype=parts[0].dtype)
    position = 0
    for part in parts:
        joined[position : position + len(part), : part.shape[1]] = part
        position += len(part)
    return joined
