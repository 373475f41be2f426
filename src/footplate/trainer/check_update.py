"""One update on the largest micro-batch that the data can give: forward, backward, optimizer."""

from __future__ import annotations

import copy
import gc
import math
import resource
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from footplate import rng
from footplate.optim import schedules
from footplate.trainer.largest_batch import read_largest
from footplate.training import advice, batches, traits
from footplate.training.advice import BatchFacts
from footplate.training.findings import Finding, failed, passed, warned
from footplate.training.rehearsal import describe_failure
from footplate.words import format_bytes

if TYPE_CHECKING:
    from footplate.trainer.training import Training


class Attempt(NamedTuple):
    """How an update came out."""

    loss: float = math.nan
    problem: str = ""  # empty where it was made
    is_memory: bool = False
    error: str = ""  # its type and text alone


def try_update(trainer: Training, model: nn.Module, loader: Any) -> list[Finding]:
    """Make one update of the largest micro-batch; if it fails, find out what would not."""
    try:
        batch, facts = read_largest(trainer, loader)
    except Exception as error:
        return [failed("data", describe_failure(error), ["train_dataset", "data_collator"])]
    attempt = attempt_updates(trainer, model, batch)
    if attempt.is_memory:
        return [explain_memory(trainer, model, batch, facts, attempt)]
    if attempt.problem:
        return [explain_failure(trainer, model, loader, facts, attempt)]
    if not math.isfinite(attempt.loss):
        return [explain_nonfinite(trainer, facts, attempt.loss)]
    return [passed("update", f"{facts}, {describe_memory(trainer._device)}")]


def attempt_updates(trainer: Training, model: nn.Module, batch: Any) -> Attempt:
    """Two updates: what an optimizer makes in its first step takes memory in the second, and so do sums."""
    first = attempt_update(trainer, model, batch)
    if first.problem or not math.isfinite(first.loss):
        return first
    num_batches = 2 if trainer.args.gradient_accumulation_steps > 1 else 1
    second = attempt_update(trainer, model, batch, num_batches)
    if not second.problem:
        return first
    return second._replace(problem=f"in the second update, {second.problem}")


def attempt_update(trainer: Training, model: nn.Module, batch: Any, num_batches: int = 1) -> Attempt:
    """One update of the same micro-batch, once or more often; after a failure, nothing of it is left."""
    run, stage = trainer._current_run, ""
    try:
        given = iter([copy.copy(batch) for _ in range(num_batches)])
        micro_batches, num_items = traits.call_positional(
            trainer.get_batch_samples, given, num_batches, trainer._device
        )
        run.begin_update(0, num_batches, True)
        trainer._accumulate_once(model, micro_batches, num_items)
        trainer._strategy.finish_gradients(run.parameters)
        loss = float(run.meter.update_loss)
        if not math.isfinite(loss):  # its gradients would damage what is still to be tried
            run.undo_update()
            return Attempt(loss)
        if trainer.args.max_grad_norm:
            trainer._clip_grad_norm(model)
        stage = "in the step of the optimizer, "
        trainer.optimizer.step()
        schedules.advance(trainer.lr_scheduler)
        run.finish_update(trainer.state, 0, micro_batches)
        return Attempt(loss)
    except Exception as error:
        # text alone: the error holds its frames, and they hold the activations
        name = f"{type(error).__name__}: {str(error).strip()}"
        attempt = Attempt(math.nan, stage + describe_failure(error), batches.is_out_of_memory(error), name)
    run.zero_grad()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return attempt


def explain_nonfinite(trainer: Training, facts: BatchFacts, loss: float) -> Finding:
    """That the loss of the first update is not a number."""
    text = f"the loss of {facts} is {loss}"
    settings = ["train_dataset without such rows", "bf16 or fp16"]
    if trainer.args.on_nonfinite == "skip":
        return warned("update", f"{text}; on_nonfinite='skip' leaves such an update out", settings)
    return failed("update", text, [*settings, "on_nonfinite='skip'"])


def explain_memory(
    trainer: Training, model: nn.Module, batch: Any, facts: BatchFacts, attempt: Attempt
) -> Finding:
    """How many of the longest rows fit, and what to set."""
    fitting, num_rows = None, facts.num_rows // 2
    while num_rows >= 1 and fitting is None:
        part = batches.split_batch(batch, num_rows)[0]
        again = attempt_updates(trainer, model, part)
        fitting = num_rows if not again.problem else None
        num_rows //= 2
    text = advice.explain_memory(facts, attempt.error, fitting)
    if trainer.args.auto_find_batch_size and fitting is not None:
        return warned("update", f"{text} auto_find_batch_size will split it", ["per_device_train_batch_size"])
    return failed("update", text, advice.mend_memory(facts, fitting, trainer.args))


def explain_failure(
    trainer: Training, model: nn.Module, loader: Any, facts: BatchFacts, attempt: Attempt
) -> Finding:
    """Whether every batch fails, or the longest rows alone."""
    text = f"failed with {facts}: {attempt.problem.rstrip('.')}."
    if not facts.is_largest:
        return failed("update", text, ["train_dataset", "data_collator"])
    text += advice.explain_positions(trainer.model, facts.width)
    try:
        with rng.scoped():
            first = next(iter(loader))
    except Exception as error:
        return failed("update", f"{text} The first batch cannot be read: {describe_failure(error)}")
    if attempt_update(trainer, model, first).problem:
        return failed(
            "update", f"{text} The first batch of the run fails too.", ["train_dataset", "data_collator"]
        )
    settings = ["max_length of your tokenizer or of your data", "train_dataset without its longest rows"]
    return failed(
        "update", f"{text} The first batch of the run does not: the run would fail later.", settings
    )


def describe_memory(device: torch.device) -> str:
    """The most memory that was used so far."""
    if device.type == "cuda":
        return f"at most {format_bytes(torch.cuda.max_memory_allocated(device))} of {device}"
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return f"at most {format_bytes(most)} in this process"
