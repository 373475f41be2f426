"""How long a run is, and how its learning rate goes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from footplate.batch import entry
from footplate.planning.trial import find_tensors

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

BuildSchedule = Callable[[torch.optim.Optimizer, int], Any]


class Schedule(NamedTuple):
    """The learning rate; its end is None where it depends on what evaluation finds."""

    name: str
    warmup_steps: int
    peak: float
    end: float | None


class Duration(NamedTuple):
    """How long a run is."""

    updates: int
    updates_per_epoch: int
    epochs: float
    samples: int
    rows_per_update: int
    micro_batch: int
    accumulation: int
    tokens: int | None  # padding included, if rows are as long as those of the batch that was tried


def plan_duration(args: TrainingArguments, batch: Any, num_rows: int | None, world_size: int) -> Duration:
    """How many updates, samples and tokens."""
    micro_batch, accumulation = args.train_batch_size, args.gradient_accumulation_steps
    rows_per_update = micro_batch * accumulation * world_size
    if num_rows is None and args.max_steps <= 0:
        raise ValueError(
            f"max_steps={args.max_steps}, and the training data has no length to count updates from. "
            "Set max_steps to a positive number, or give the dataset a __len__."
        )
    if num_rows is None:
        updates_per_epoch = args.max_steps
    else:
        rounding = math.floor if args.dataloader_drop_last else math.ceil
        num_batches = max(rounding(num_rows / (micro_batch * world_size)), 1)
        updates_per_epoch = math.ceil(num_batches / accumulation)
    has_steps = args.max_steps > 0
    updates = args.max_steps if has_steps else math.ceil(args.num_train_epochs * updates_per_epoch)
    by_epochs = int((num_rows or 0) * args.num_train_epochs)
    samples = updates * rows_per_update if has_steps else by_epochs
    tokens = entry(batch, "input_ids")
    tensors = find_tensors(tokens)
    per_row = math.prod(tensors[0].shape[1:]) if tensors and tensors[0].dim() > 1 else None
    return Duration(
        updates=updates,
        updates_per_epoch=updates_per_epoch,
        epochs=round(updates / updates_per_epoch, 2) if has_steps else args.num_train_epochs,
        samples=samples,
        rows_per_update=rows_per_update,
        micro_batch=micro_batch,
        accumulation=accumulation,
        tokens=None if per_row is None else samples * per_row,
    )


def plan_schedule(args: TrainingArguments, num_updates: int, build: BuildSchedule | None) -> Schedule:
    """The schedule's warm-up, highest and last rate."""
    name = str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type))
    warmup_steps = args.get_warmup_steps(num_updates)
    if build is None:
        return Schedule(name, warmup_steps, args.learning_rate, None)
    stand_in = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=args.learning_rate)
    factors = getattr(build(stand_in, num_updates), "lr_lambdas", None)
    end = args.learning_rate * factors[0](num_updates) if factors else None
    return Schedule(name, warmup_steps, args.learning_rate, end)
