"""The rows of an update as people read them, each with the loss of that row alone."""

from __future__ import annotations

from typing import Any

import torch

from footplate import comm, rng
from footplate.instruments.measures import RowMeasure
from footplate.instruments.weights import WeightsBefore
from footplate.trainer import Trainer, single_rows
from footplate.training.modes import evaluating

MOST_ROWS = 256  # beyond so many, the loss of each row is measured only if it is asked for


def show_rows(trainer: Trainer, batches: list[Any], outputs: list[Any], rows: list[RowMeasure]) -> None:
    """Give each row its readable form: input, target, and what the model answered in the update."""
    remaining = iter(rows)
    for index, batch in enumerate(batches):
        num_rows = comm.find_batch_size(batch) or 0
        output = outputs[index] if len(outputs) == len(batches) else None
        for shown in single_rows.show_rows(trainer, batch, output, num_rows):
            next(remaining).shown = shown


def measure_rows(
    trainer: Trainer, batches: list[Any], rows: list[RowMeasure], weights: WeightsBefore
) -> str | None:
    """Give each row the loss of that row alone, under the weights before the update; why not, if it failed.

    The update is over, so nothing here can change it. Dropout is off: with it, the row would have drawn
    other numbers alone than it did in its batch.
    """
    weights.put_back()
    remaining = iter(rows)
    try:
        with rng.scoped(), torch.no_grad(), evaluating(trainer.model), trainer._evaluating():
            for batch in batches:
                num_rows = comm.find_batch_size(batch) or 0
                for place in range(num_rows):
                    row = comm.take_rows(batch, slice(place, place + 1), num_rows)
                    next(remaining).loss, _ = single_rows.find_loss(trainer, trainer.model, row)
    except Exception as error:
        return f"The loss of single rows could not be computed: {type(error).__name__}: {error}"
    return None
