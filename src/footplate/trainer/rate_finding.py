"""`Trainer.find_learning_rate()`: real updates at a rate that rises, and no trace of them afterwards."""

from __future__ import annotations

import gc
import logging
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from tqdm import tqdm

from footplate import comm, rng
from footplate.checkpoint.snapshot import num_bytes
from footplate.distributed.failures import FailureWatch
from footplate.evaluation.memory_limit import free_memory
from footplate.rates.advice import COMPLETE, EXPLODED, GRADIENTS_NOT_FINITE, LOSS_NOT_FINITE, NO_DATA
from footplate.rates.result import LearningRates, build_result
from footplate.rates.sweep import Explosion, RisingRate, list_rates
from footplate.trainer.staging import begin_run, on_stage
from footplate.training import advice, patches, traits
from footplate.training.keeping import weights_of
from footplate.training.meter import as_norm
from footplate.training.rehearsal import CannotPutBack
from footplate.words import format_bytes

if TYPE_CHECKING:
    from footplate.trainer.training import Training

logger = logging.getLogger(__name__)

MAX_REFUSED = 3  # updates in a row: then it is the rate, and not a row of the data


class Measured(NamedTuple):
    """The rates that were tried, the loss at each, and why there are no more."""

    rates: list[float]
    losses: list[float]
    stopped: str


class Given(NamedTuple):
    """What an update is made of."""

    epoch: int
    micro_batches: list[Any]
    num_items: Any


def find_rates(
    trainer: Training,
    lowest: float = 1e-7,
    highest: float = 10.0,
    num_updates: int = 100,
    puts_back: bool = True,
) -> LearningRates:
    """Make updates while the rate rises, and say what their losses show.

    Args:
        trainer: The Trainer, which is afterwards as it was.
        lowest: The rate of the first update.
        highest: The rate of the last update.
        num_updates: How many updates to make.
        puts_back: Set model, data and the user's objects back; not needed where the process ends.
    """
    rates = list_rates(lowest, highest, num_updates)
    check_can_sweep(trainer)
    args, began = trainer.args, time.perf_counter()
    name = args.run_name or os.path.basename(os.path.abspath(str(args.output_dir)))
    shows_progress = not args.disable_tqdm and args.process_index == 0
    found, rising = sweep(trainer, rates, puts_back, shows_progress)
    if args.world_size > 1:  # what exchanged gradients is bound to the weights for as long as it is there
        gc.collect()
    planned, seconds = (rates[0], rates[-1], num_updates), comm.broadcast_object(time.perf_counter() - began)
    return build_result(*found, rising.current, rising.factors, planned, name, seconds)


def sweep(
    trainer: Training, rates: list[float], puts_back: bool, shows_progress: bool
) -> tuple[Measured, RisingRate]:
    """What was measured, and which rates the groups had."""
    with prepared(trainer, puts_back) as model:
        rising = RisingRate(trainer.optimizer, trainer.args.learning_rate)
        return measure(trainer, model, rising, rates, shows_progress), rising


def check_can_sweep(trainer: Training) -> None:
    """Refuse what cannot be swept, or not be put back."""
    args = trainer.args
    if trainer.is_in_train:
        raise RuntimeError("find_learning_rate() was called inside train(). Call it before train().")
    if args.sharding is not None:
        raise ValueError(
            "find_learning_rate() takes processes that hold the whole model, and fsdp cuts it up for good. "
            "Look for the rate without fsdp, with as many rows in an update by gradient_accumulation_steps."
        )
    if args.world_size > 1 and trainer.model_wrapped is not trainer.model:
        raise ValueError(
            f"With {args.world_size} processes, find_learning_rate() comes before train(): what that has put "
            "around the model would exchange gradients too. Call it first, or make a new Trainer."
        )
    if "layerwise" in str(args.optim):
        raise ValueError(
            f"optim={str(args.optim)!r} has an optimizer for each parameter, which steps inside backward by "
            "a schedule of its own: find_learning_rate() cannot set their rates. Look for the rate with "
            f"optim={str(args.optim).replace('_layerwise', '')!r}."
        )


@contextmanager
def prepared(trainer: Training, puts_back: bool) -> Iterator[nn.Module]:
    """The model of a run that leaves no trace, ready for its first update."""
    if puts_back:
        check_has_room(trainer)
    try:
        with FailureWatch(), on_stage(trainer, puts_back) as changed:
            model, _ = begin_run(trainer)
            noise = patches.embedding_noise(trainer.model, trainer.neftune_noise_alpha)
            with rng.holding(trainer._current_run.generators), noise:
                yield model
    except CannotPutBack as reason:
        raise ValueError(
            f"find_learning_rate() would change something for good: {reason}. `footplate find-lr script.py` "
            "does it in a process of its own."
        ) from None
    if changed:
        logger.warning(
            "find_learning_rate() changed large tensors that your code writes to, and did not put them back: "
            "%s. Make them buffers of a module (register_buffer), or use `footplate find-lr script.py`.",
            advice.join_names(changed),
        )


def check_has_room(trainer: Training) -> None:
    """Refuse if a copy of weights and optimizer state does not fit into memory."""
    num_copies = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)  # each process of this machine keeps one
    needed = num_copies * num_bytes(weights_of(trainer.model, trainer.optimizer))
    free, error = free_memory(), None
    if needed > free:
        error = ValueError(
            f"find_learning_rate() keeps a copy of weights and optimizer state, to put them back: it "
            f"takes {format_bytes(needed)} of memory, and {format_bytes(free)} are free. `footplate find-lr "
            "script.py` needs no copy: its process ends afterwards."
        )
    comm.raise_together(error)


def measure(
    trainer: Training, model: nn.Module, rising: RisingRate, rates: list[float], shows_progress: bool
) -> Measured:
    """The loss of each update until one of them ends the sweep, and why it ended."""
    tried: list[float] = []
    losses: list[float] = []
    explosion, updates, num_refused = Explosion(), read_updates(trainer), 0
    bar = tqdm(rates, "Learning rates", unit=" updates", leave=False, delay=1, disable=not shows_progress)
    for rate in bar:
        given = next(updates, None)
        if given is None:
            return Measured(tried, losses, NO_DATA)
        rising.set(rate)
        loss, is_made = make_update(trainer, model, given)
        num_refused = 0 if is_made else num_refused + 1
        if not is_made and trainer.args.on_nonfinite == "skip" and num_refused < MAX_REFUSED:
            continue  # training leaves such an update out too: a row may be damaged
        tried.append(rate)
        losses.append(loss)
        if not math.isfinite(loss):
            return Measured(tried, losses, LOSS_NOT_FINITE)
        if explosion.has_come(loss):
            return Measured(tried, losses, EXPLODED)
        if not is_made:
            return Measured(tried, losses, GRADIENTS_NOT_FINITE)
    return Measured(tried, losses, COMPLETE)


def read_updates(trainer: Training) -> Iterator[Given]:
    """What each update is made of, epoch after epoch, as long as the data gives any."""
    run = trainer._current_run
    for epoch in count():
        batches = run.feed.start_epoch(epoch)
        for size in run.plan.update_sizes():
            run.begin_reading(trainer.state.global_step)
            micro_batches, num_items = traits.call_positional(
                trainer.get_batch_samples, batches, size, trainer._device
            )
            if run.feed.is_at_end(micro_batches):
                break
            yield Given(epoch, micro_batches, num_items)
        if run.feed.batches_done == 0:
            return


def make_update(trainer: Training, model: nn.Module, given: Given) -> tuple[float, bool]:
    """The loss of one update, and whether it was made: loss and gradients were finite."""
    run = trainer._current_run
    trainer._accumulate(model, given.micro_batches, given.num_items)
    found = comm.gather_objects(float(run.meter.update_loss))  # what all ranks go by must be the same
    loss = sum(found) / len(found)
    norm = trainer._clip_grad_norm(model) if trainer.args.max_grad_norm else None
    norm = as_norm(trainer._get_grad_norm(model, grad_norm=norm))
    # a loss scaler refuses a step with gradients that are not finite by itself
    is_made = math.isfinite(loss) and (trainer._strategy.is_scaled or math.isfinite(float(norm)))
    if is_made:
        run.step(trainer.optimizer)
    run.finish_update(trainer.state, given.epoch, given.micro_batches)
    run.meter.loss = torch.zeros_like(run.meter.loss)  # in a large sum, a small loss loses its digits
    return loss, is_made
