"""How many updates a run makes, and where in them it starts."""

from __future__ import annotations

import copy
import logging
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from footplate.state import ExportableState

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Position(ExportableState):
    """Where a run is in its data; each checkpoint stores it, and a resumed run starts there."""

    epoch: int = 0
    samples_done: int = 0  # of this epoch
    is_begun: bool = False  # the epoch's loader was started; starting it draws a random number
    is_epoch_over: bool = False  # `on_epoch_end` was called already
    pending: Sequence[str] = ()  # events not called and flags of the control set when it was interrupted
    last_update: Mapping[str, float] | None = None  # its norm and rates, for a log that is pending
    batches_done: int | None = None  # micro-batches of this epoch
    cut: Sequence[int] = ()  # how the loader cut the epoch then: micro-batches in it, rows of a full one
    eval_loaders: Sequence[str] = ()  # evaluation sets whose workers live from one evaluation to the next
    shift: Sequence[int] = ()  # updates of an epoch, and how much later the run ends: in updates, in epochs

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any] | None) -> Position | None:
        """The position in a checkpoint; None if another program wrote the checkpoint."""
        if not stored:
            return None
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in stored["attributes"].items() if name in known})

    def for_resume(self, skips_data: bool) -> Position:
        """Where to continue: in the next epoch if this one is over, at its start unless data is skipped."""
        if skips_data and not self.is_epoch_over:
            return self
        if not skips_data:
            return Position(self.epoch, eval_loaders=self.eval_loaders)
        return Position(
            self.epoch + 1,
            pending=self.pending,
            last_update=self.last_update,
            eval_loaders=self.eval_loaders,
            shift=self.shift,
        )

    def state(self) -> dict[str, Any]:
        """All fields, as plain values."""
        lists = {name: list(getattr(self, name)) for name in ("pending", "cut", "eval_loaders", "shift")}
        return {"args": {}, "attributes": {**vars(self), **lists}}


class Extension(NamedTuple):
    """A later end for a run that is resumed, in epochs or in updates, and what its schedule does."""

    epochs: float | None
    steps: int | None
    policy: str

    def apply_to(self, args: TrainingArguments) -> TrainingArguments:
        """The arguments with the later end; those given stay as they are."""
        later = copy.copy(args)
        if self.steps is not None:
            later.max_steps = self.steps
        elif self.epochs is not None:
            later.max_steps, later.num_train_epochs = -1, float(self.epochs)
        return later


def choose_extension(
    args: TrainingArguments, epochs: float | None, steps: int | None, end: float | None, policy: str
) -> Extension | None:
    """The later end that was passed to `train()`, in one unit; None without one.

    Args:
        args: The settings of the run.
        epochs: `extend_to_epochs`.
        steps: `extend_to_steps`.
        end: `extend_to`, an earlier name: updates if `max_steps` is set, else epochs.
        policy: What the schedule does.
    """
    if end is not None:
        name, value = ("extend_to_steps", int(end)) if args.max_steps > 0 else ("extend_to_epochs", end)
        logger.warning("train(extend_to=%s) is now train(%s=%s).", end, name, value)
        epochs, steps = (epochs, int(end)) if args.max_steps > 0 else (end, steps)
    if epochs is not None and steps is not None:
        raise ValueError(
            f"train() was given extend_to_epochs={epochs} and extend_to_steps={steps}. Pass one of them."
        )
    return None if epochs is None and steps is None else Extension(epochs, steps, policy)


@dataclass(frozen=True)
class TrainingPlan:
    """The numbers of one `train()` call, which do not change during it; the defaults stand for no run."""

    max_steps: int = 0
    num_epochs: int = 0
    updates_per_epoch: int = 0
    batches_per_epoch: int = 0  # micro-batches; for a stream of unknown length, those of the whole run
    accumulation: int = 1
    micro_batch_size: int = 1  # of one process; with a budget of tokens, the mean, rounded up
    num_ranks: int = 1
    num_examples: int = 0
    num_train_samples: float = 0
    first_step: int = 0  # updates made before this call, by the run that it resumes
    start: Position = Position()  # where in the data it resumes
    first_batch: int = 0  # micro-batches of the first epoch that are done, in the current batch size
    shift: tuple[int, int] = (0, 0)  # updates and epochs by which it ends later than the settings alone say
    start_time: float = field(default_factory=time.time)

    @property
    def total_batch_size(self) -> int:
        """Samples in one full update."""
        return self.round_size * self.accumulation

    @property
    def round_size(self) -> int:
        """Samples in a micro-batch of every process together."""
        return self.micro_batch_size * self.num_ranks

    def lasting(self, max_steps: int) -> TrainingPlan:
        """The same plan with so many updates."""
        return replace(self, max_steps=max_steps)

    def update_sizes(self, batches_done: int = 0) -> Iterator[int]:
        """Micro-batches of each update left in an epoch, such as 4, 4, 4, 2: the last may be short."""
        for left in range(self.batches_per_epoch - batches_done, 0, -self.accumulation):
            yield min(left, self.accumulation)

    def epoch_at(self, epoch: int, batches_done: int) -> float:
        """The epoch as a fraction, after `batches_done` of its micro-batches."""
        return epoch + batches_done / self.batches_per_epoch


def plan_training(
    args: TrainingArguments,
    num_batches: int | None,
    num_examples: int | None,
    micro_batch_size: int,
    first_step: int = 0,
    position: Position | None = None,
    num_drawn: int | None = None,
    num_ranks: int = 1,
) -> TrainingPlan:
    """The plan of a run over a loader of `num_batches`; None for a stream of unknown length.

    A resumed run has made `first_step` updates and continues at `position`. A checkpoint that another program
    wrote has no position: it is then computed from the updates. `num_drawn` is how many samples an epoch
    draws, where that may differ from `num_examples`. Each of `num_ranks` processes has such a loader.
    """
    accumulation = args.gradient_accumulation_steps
    if args.per_device_train_tokens is not None and num_batches and num_drawn:
        micro_batch_size = math.ceil(num_drawn / (num_batches * num_ranks))
    round_size = micro_batch_size * num_ranks
    total_batch_size = round_size * accumulation
    if num_batches is None:
        check_has_end(args)
        updates_per_epoch, num_epochs = args.max_steps, sys.maxsize  # read the stream as often as needed
        num_batches, num_examples = args.max_steps * accumulation, args.max_steps * total_batch_size
    else:
        check_some_data(num_batches)
        num_examples = num_examples if num_examples is not None else num_batches * round_size
        updates_per_epoch = math.ceil(num_batches / accumulation)
        wanted = args.max_steps / updates_per_epoch if args.max_steps > 0 else args.num_train_epochs
        num_epochs = math.ceil(wanted)
    max_steps = args.max_steps
    if max_steps <= 0:
        max_steps = math.ceil(args.num_train_epochs * updates_per_epoch)

    if position is None:
        epoch, updates_done = divmod(first_step, updates_per_epoch)
        position = Position(epoch, updates_done * total_batch_size, is_begun=updates_done > 0)
    if num_drawn is not None:
        check_inside(position, num_drawn)
    if position.batches_done is not None and list(position.cut) == [num_batches, round_size]:
        first_batch = position.batches_done
    else:
        num_drawn = num_examples if num_drawn is None else num_drawn
        drops_last = args.dataloader_drop_last or num_batches * round_size < num_drawn
        first_batch = num_batches - _batches_left(position, num_drawn, round_size, num_batches, drops_last)
    plan = TrainingPlan(
        max_steps=max_steps,
        num_epochs=num_epochs,
        updates_per_epoch=updates_per_epoch,
        batches_per_epoch=num_batches,
        accumulation=accumulation,
        micro_batch_size=micro_batch_size,
        num_ranks=num_ranks,
        num_examples=num_examples,
        num_train_samples=_count_samples(args, max_steps, num_examples, total_batch_size, updates_per_epoch),
        first_step=first_step,
        start=position,
        first_batch=first_batch,
    )
    return plan if num_epochs == sys.maxsize else _move_end(plan, args)


def _move_end(plan: TrainingPlan, args: TrainingArguments) -> TrainingPlan:
    """The plan of a run whose epochs had another number of updates before it was resumed."""
    start, per_epoch, left = plan.start, plan.updates_per_epoch, plan.max_steps - plan.first_step
    done = math.ceil(plan.first_batch / plan.accumulation)
    left_of_epoch = math.ceil((plan.batches_per_epoch - plan.first_batch) / plan.accumulation)
    if start.shift and start.shift[0] == per_epoch:
        # as planned when the checkpoint was written, also where a callback has ended epochs early
        more_steps, more_epochs = start.shift[1:]
    elif plan.first_step == start.epoch * per_epoch + done:
        return plan
    elif args.max_steps > 0:
        epochs_after = math.ceil(max(left - left_of_epoch, 0) / per_epoch)
        more_steps, more_epochs = 0, start.epoch + 1 + epochs_after - plan.num_epochs
    else:
        # convert the rest of the epochs to updates of the current size; 1e-9 absorbs rounding, which would
        # add an update
        epochs_left = args.num_train_epochs - start.epoch - plan.first_batch / plan.batches_per_epoch
        more_steps, more_epochs = math.ceil(epochs_left * per_epoch - 1e-9) - left, 0
    return replace(
        plan,
        max_steps=plan.max_steps + more_steps,
        num_epochs=plan.num_epochs + more_epochs,
        shift=(more_steps, more_epochs),
    )


def _count_samples(
    args: TrainingArguments, max_steps: int, num_examples: int, total_batch_size: int, updates_per_epoch: int
) -> float:
    """Samples that the whole run uses."""
    if args.max_steps <= 0:
        return num_examples * args.num_train_epochs
    if args.per_device_train_tokens is not None:  # updates differ in their rows
        return num_examples * max_steps / updates_per_epoch
    return max_steps * total_batch_size


def _batches_left(
    position: Position, num_samples: int, round_size: int, num_batches: int, drops_last: bool
) -> int:
    """Micro-batches in the rest of an epoch, in the current size, whatever their size was before."""
    if position.samples_done == 0:
        return num_batches
    samples_left = max(num_samples - position.samples_done, 0)
    return samples_left // round_size if drops_last else math.ceil(samples_left / round_size)


def check_inside(position: Position, num_samples: int) -> None:
    """A resumed run goes on inside the epoch."""
    if position.samples_done > num_samples:
        raise ValueError(
            f"The checkpoint was written after sample {position.samples_done} of its epoch, and an epoch has "
            f"{num_samples} samples now: there is nothing to go on with. Pass the training data of the run "
            "that wrote it; or set ignore_data_skip=True to begin the epoch again with this data; or train "
            "the saved model as a new run, without resume_from_checkpoint."
        )


def check_has_end(args: TrainingArguments) -> None:
    """Data without a length needs a number of updates."""
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
