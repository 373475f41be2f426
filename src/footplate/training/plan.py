"""How many updates a run makes, and where in them it starts."""

from __future__ import annotations

import copy
import math
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from footplate.state import ExportableState

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments


@dataclass
class Position(ExportableState):
    """Where in its data a run is: what a checkpoint must know to go on with the next sample."""

    epoch: int = 0
    updates_done: int = 0  # of this epoch
    samples_done: int = 0  # of this epoch
    is_begun: bool = False  # the epoch's loader was started, which draws a random number
    is_epoch_over: bool = False  # the end of the epoch was announced already
    pending: list[str] = field(default_factory=list)  # flags of the control that an interruption left undone

    def begin(self, epoch: int) -> None:
        """Stand at the start of an epoch; one that is resumed is stood in already."""
        if epoch != self.epoch or self.is_epoch_over:
            self.epoch, self.updates_done, self.samples_done, self.is_epoch_over = epoch, 0, 0, False
        self.is_begun = True

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any] | None) -> Position | None:
        """The position a checkpoint holds, None where another program wrote it."""
        return cls(**stored["attributes"]) if stored else None

    def after_epoch(self) -> Position:
        """Where the next sample comes from: the next epoch, where this one is over."""
        return Position(self.epoch + 1, pending=self.pending) if self.is_epoch_over else self

    def advance(self, num_samples: int) -> None:
        """One update further."""
        self.updates_done += 1
        self.samples_done += num_samples

    def state(self) -> dict[str, Any]:
        """All of it, as plain numbers."""
        return {"args": {}, "attributes": dict(vars(self))}


class Extension(NamedTuple):
    """A later end for a run that is resumed, in the unit it was planned in, and what its schedule does."""

    end: float
    policy: str

    def apply_to(self, args: TrainingArguments) -> TrainingArguments:
        """The arguments with the later end; those given stay as they are."""
        later = copy.copy(args)
        if args.max_steps > 0:
            later.max_steps = int(self.end)
        else:
            later.num_train_epochs = float(self.end)
        return later


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
    first_epoch: int = 0
    first_batch: int = 0  # micro-batches of the first epoch that are already seen
    first_sample: int = 0  # samples of the first epoch that are already seen
    start_time: float = field(default_factory=time.time)

    @property
    def total_batch_size(self) -> int:
        """Samples in one full update."""
        return self.micro_batch_size * self.accumulation

    def update_sizes(self, batches_done: int = 0) -> Iterator[int]:
        """Micro-batches of each update left in an epoch: 4, 4, 4, 2 where the last is short."""
        for left in range(self.batches_per_epoch - batches_done, 0, -self.accumulation):
            yield min(left, self.accumulation)

    def epoch_at(self, epoch: int, batches_done: int) -> float:
        """The epoch as a fraction, after some of its micro-batches."""
        return epoch + batches_done / self.batches_per_epoch


def plan_training(
    args: TrainingArguments,
    num_batches: int | None,
    num_examples: int | None,
    micro_batch_size: int,
    first_step: int = 0,
    position: Position | None = None,
) -> TrainingPlan:
    """The plan of a run over a loader of `num_batches` (None: a stream that does not know its length).

    A run that resumes has made `first_step` updates and stands at `position`; without one, as in a checkpoint
    that another program wrote, it is worked out from the updates.
    """
    accumulation = args.gradient_accumulation_steps
    total_batch_size = micro_batch_size * accumulation
    if num_batches is None:
        check_has_end(args)
        updates_per_epoch, num_epochs = args.max_steps, sys.maxsize  # around the stream as often as it takes
        num_batches, num_examples = args.max_steps * accumulation, args.max_steps * total_batch_size
    else:
        check_some_data(num_batches)
        num_examples = num_examples if num_examples is not None else num_batches * micro_batch_size
        updates_per_epoch = math.ceil(num_batches / accumulation)
        wanted = args.max_steps / updates_per_epoch if args.max_steps > 0 else args.num_train_epochs
        num_epochs = math.ceil(wanted)

    if position is None:
        epoch, updates_done = divmod(first_step, updates_per_epoch)
        position = Position(epoch, updates_done, updates_done * total_batch_size, is_begun=updates_done > 0)
    first_batch = num_batches - _batches_left(position, num_examples, micro_batch_size, num_batches)
    max_steps = args.max_steps
    if max_steps <= 0:
        max_steps = math.ceil(args.num_train_epochs * updates_per_epoch)
        if first_step != position.epoch * updates_per_epoch + math.ceil(first_batch / accumulation):
            # other batches than before: the epochs that are left, in updates as they are now
            left = args.num_train_epochs - position.epoch - first_batch / num_batches
            max_steps = first_step + math.ceil(left * updates_per_epoch - 1e-9)
    return TrainingPlan(
        max_steps=max_steps,
        num_epochs=num_epochs,
        updates_per_epoch=updates_per_epoch,
        batches_per_epoch=num_batches,
        accumulation=accumulation,
        micro_batch_size=micro_batch_size,
        num_examples=num_examples,
        num_train_samples=max_steps * total_batch_size
        if args.max_steps > 0
        else num_examples * args.num_train_epochs,
        first_step=first_step,
        first_epoch=position.epoch,
        first_batch=first_batch,
        first_sample=position.samples_done,
    )


def _batches_left(position: Position, num_examples: int, micro_batch_size: int, num_batches: int) -> int:
    """Micro-batches that the rest of an epoch makes, of whatever size they were before."""
    if position.samples_done == 0:
        return num_batches
    samples_left = max(num_examples - position.samples_done, 0)
    drops_last = num_batches * micro_batch_size <= num_examples
    return samples_left // micro_batch_size if drops_last else math.ceil(samples_left / micro_batch_size)


def check_has_end(args: TrainingArguments) -> None:
    """Data without length comes with a number of updates."""
    if args.max_steps <= 0:
        raise ValueError(
            f"max_steps={args.max_steps}, and the training data has no length to count updates from. "
            "Set max_steps to a positive number, or give the dataset a __len__."
        )


def check_some_data(num_batches: int) -> None:
    """There is at least one batch."""
    if num_batches == 0:
        raise ValueError(
            "The training data gives no batch: it is empty, or smaller than one batch while "
            "dataloader_drop_last=True. Check train_dataset, or lower per_device_train_batch_size."
        )
