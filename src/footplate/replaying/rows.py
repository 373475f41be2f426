"""The rows of an update as people read them, each with the loss of that row alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from footplate import comm, rng
from footplate.batch import find_labels, ignored_outputs, outputs_without_loss
from footplate.instruments.measures import RowMeasure
from footplate.instruments.weights import WeightsBefore
from footplate.samples.batch import SampleBatch
from footplate.samples.formatters import format_plain, pick_formatter
from footplate.samples.text import TextReader, plain_value
from footplate.trainer import Trainer
from footplate.wrappers import bare_model

logger = logging.getLogger(__name__)

MOST_ROWS = 256  # beyond so many, the loss of each row is measured only if it is asked for


def show_rows(trainer: Trainer, batches: list[Any], outputs: list[Any], rows: list[RowMeasure]) -> None:
    """Give each row its readable form: input, target, and what the model answered in the update."""
    remaining = iter(rows)
    for index, batch in enumerate(batches):
        num_rows = comm.find_batch_size(batch) or 0
        output = outputs[index] if len(outputs) == len(batches) else None
        for shown in format_rows(trainer, batch, output, num_rows):
            next(remaining).shown = {str(name): plain_value(value) for name, value in shown.items()}


def format_rows(trainer: Trainer, batch: Any, output: Any, num_rows: int) -> list[dict[str, Any]]:
    """The rows of one micro-batch by the formatter for this task; plain numbers where that fails."""
    model = bare_model(trainer.model)
    batch = comm.move_to_device(batch, "cpu")
    answers = (
        outputs_without_loss(output, ignored_outputs(model), has_loss=True) if output is not None else None
    )
    answers = comm.move_to_device(comm.nested_detach(answers), "cpu")
    if comm.find_batch_size(answers) != num_rows:
        answers = None
    labels = find_labels(batch, trainer.label_names, callable(trainer.compute_loss_func))
    sample = SampleBatch(
        batch, labels, answers, model, TextReader(trainer.processing_class), trainer.label_names
    )
    for formatter in (pick_formatter, lambda _: format_plain):
        try:
            shown = formatter(sample)(sample)
        except Exception as error:  # rows in an unusual form must not end the replay
            logger.debug("The rows cannot be shown as those of a task: %r", error)
            sample = SampleBatch(batch, labels, None, model)
            continue
        if len(shown) == num_rows:
            return shown
    return [{} for _ in range(num_rows)]


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
        with rng.scoped(), torch.no_grad(), evaluating(trainer.model):
            for batch in batches:
                num_rows = comm.find_batch_size(batch) or 0
                for place in range(num_rows):
                    row = comm.take_rows(batch, slice(place, place + 1), num_rows)
                    next(remaining).loss = find_loss(trainer, row)
    except Exception as error:
        return f"The loss of single rows could not be computed: {type(error).__name__}: {error}"
    return None


def find_loss(trainer: Trainer, batch: Any) -> float:
    """The loss of a batch as training computes it."""
    batch = trainer._prepare_inputs(comm.move_to_device(batch, trainer.args.device))
    with trainer.compute_loss_context_manager():
        loss = trainer.compute_loss(trainer.model, batch)
    loss = loss[0] if isinstance(loss, tuple) else loss
    return float(loss.detach().float().mean())


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """In the block, no module draws random numbers or updates its statistics; then all is as before."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
