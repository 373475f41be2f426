"""How many updates a run makes, and where in them it starts."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments


@dataclass(frozen=True)
class TrainingPlan:
    """The numbers of one `train()` call; nothing in it changes while the run lasts."""

    max_steps: int
    num_epochs: int
    updates_per_epoch: int
    batches_per_epoch: int  # micro-batches; for a stream of unknown length, those of the whole run
    accumulation: int
    micro_batch_size: int
    num_examples: int
    num_train_samples: float
    first_step: int = 0  # updates already made by the run this one resumes
    start_time: float = field(default_factory=time.time)

    @property
    def total_batch_size(self) -> int:
        """Samples in one full update."""
        return self.micro_batch_size * self.accumulation

    @property
    def first_epoch(self) -> int:
        """The epoch the run starts or resumes in."""
        return self.first_step // self.updates_per_epoch

    @property
    def first_update(self) -> int:
        """Updates of the first epoch that are already made."""
        return self.first_step % self.updates_per_epoch

    @property
    def first_sample(self) -> int:
        """Samples of the first epoch that are already seen."""
        return self.first_update * self.total_batch_size

    def update_sizes(self, updates_done: int = 0) -> Iterator[int]:
        """Micro-batches of each update left in an epoch: 4, 4, 4, 2 where the last is short."""
        short = self.batches_per_epoch % self.accumulation or self.accumulation
        for update in range(updates_done, self.updates_per_epoch):
            yield short if update == self.updates_per_epoch - 1 else self.accumulation

    def epoch_at(self, epoch: int, batches_done: int) -> float:
        """The epoch as a fraction, after some of its micro-batches."""
        return epoch + batches_done / self.batches_per_epoch


def plan_training(
    args: TrainingArguments,
    num_batches: int | None,
    num_examples: int | None,
    micro_batch_size: int,
    first_step: int = 0,
) -> TrainingPlan:
    """The plan of a run over a loader of `num_batches` (None: a stream that does not know its length)."""
    accumulation = args.gradient_accumulation_steps
    total_batch_size = micro_batch_size * accumulation
    if num_batches is None:
        if args.max_steps <= 0:
            raise ValueError(
                f"max_steps={args.max_steps}, and the training data has no length to count updates from. "
                "Set max_steps to a positive number, or give the dataset a __len__."
            )
        return TrainingPlan(
            max_steps=args.max_steps,
            num_epochs=sys.maxsize,  # around the stream as often as it takes
            updates_per_epoch=args.max_steps,
            batches_per_epoch=args.max_steps * accumulation,
            accumulation=accumulation,
            micro_batch_size=micro_batch_size,
            num_examples=args.max_steps * total_batch_size,
            num_train_samples=args.max_steps * total_batch_size,
            first_step=first_step,
        )
    if num_batches == 0:
        raise ValueError(
            "The training data gives no batch: it is empty, or smaller than one batch while "
            "dataloader_drop_last=True. Check train_dataset, or lower per_device_train_batch_size."
        )
    num_examples = num_examples if num_examples is not None else num_batches * micro_batch_size
    updates_per_epoch = math.ceil(num_batches / accumulation)
    if args.max_steps > 0:
        max_steps, num_epochs = args.max_steps, math.ceil(args.max_steps / updates_per_epoch)
        num_train_samples: float = max_steps * total_batch_size
    else:
        max_steps = math.ceil(args.num_train_epochs * updates_per_epoch)
        num_epochs = math.ceil(args.num_train_epochs)
        num_train_samples = num_examples * args.num_train_epochs
    return TrainingPlan(
        max_steps=max_steps,
        num_epochs=num_epochs,
        updates_per_epoch=updates_per_epoch,
        batches_per_epoch=num_batches,
        accumulation=accumulation,
        micro_batch_size=micro_batch_size,
        num_examples=num_examples,
        num_train_samples=num_train_samples,
        first_step=first_step,
    )
