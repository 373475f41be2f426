"""The longest rows before the first update of a long run: memory ends there first, and so do positions."""

from __future__ import annotations

import copy
import gc
import logging
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from footplate import rng
from footplate.data.longest import Longest, runs_no_code
from footplate.data.worker_reads import collate_rows, fetch_rows
from footplate.distributed.strategy import Strategy
from footplate.trainer.largest_batch import choose_longest, describe_batch
from footplate.trainer.rehearsing import least_bytes
from footplate.training import advice, batches, rehearsal, traits
from footplate.training.buffers import BufferKeeper
from footplate.training.keeping import KeptObjects, weights_of
from footplate.training.stopwatch import Stopwatch

if TYPE_CHECKING:
    from footplate.trainer.training import Training

logger = logging.getLogger(__name__)

NUM_UPDATES = 100  # of these the trial takes a hundredth at most; a shorter run tells soon enough by itself
SECONDS = 0.3  # of reading a list of rows; a table tells all lengths at once
WEIGHT_BYTES = 2**30  # of more weights only changes are noticed, since hardly any forward writes to them

_JOINTS = (
    *("training_step", "compute_loss", "compute_loss_context_manager", "autocast_smart_context_manager"),
    *("get_train_dataloader", "get_batch_samples", "_prepare_inputs", "_prepare_input"),
    *("_get_num_items_in_batch", "floating_point_ops", "_track_num_input_tokens"),
)


def try_longest(trainer: Training, model: nn.Module, loader: Any) -> None:
    """Forward and backward of the longest rows; what fails is a warning. The run is the same as without."""
    if not tries_longest(trainer) or is_watched(trainer.model):
        return
    with rng.scoped():
        found = choose_longest(trainer, loader, SECONDS)
        if found is None or not found.differ:  # where all rows are as long, the first update tells
            return
        try:
            kept = KeptObjects(
                [trainer.model, trainer.data_collator, trainer.compute_loss_func],
                weights_of(trainer.model, None),
                weight_bytes=WEIGHT_BYTES,
                is_careful=True,
            )
        except rehearsal.CannotPutBack as reason:
            logger.info("The longest rows were not tried before training: %s.", reason)
            return
        try:
            problem = find_problem(trainer, model, loader, found)
        finally:
            kept.put_back()
    changed = [f"{list(one.shape)} of {one.dtype}" for one in kept.find_changed()]
    if changed:
        logger.warning(
            "The longest rows were tried before training, and forward wrote to large tensors, which now "
            "differ from what the run would have begun with: %s. To leave the trial out: rehearsal='off'.",
            advice.join_names(changed),
        )
    if problem:
        logger.warning(
            "The longest rows of the training data were tried before training: %s Training goes on, and "
            "will fail where such rows come. `footplate check` tries more; rehearsal='off' tries nothing.",
            problem,
        )


def tries_longest(trainer: Training) -> bool:
    """Whether a trial is worth its time, can be undone, and runs no code of a subclass."""
    args, run = trainer.args, trainer._current_run
    return (
        run.plan.max_steps - run.plan.first_step >= NUM_UPDATES
        and args.world_size == 1
        and type(trainer._strategy) is Strategy
        and run.compiles is None  # another shape would be compiled first
        and args.skip_memory_metrics  # else the most memory of the run is a metric
        and not args.auto_find_batch_size  # which mends what the trial would find
        and "lomo" not in args.optim  # steps in backward
        and runs_no_code(trainer.train_dataset)
        and all(traits.is_ours(getattr(trainer, name)) for name in _JOINTS)
    )


def is_watched(model: nn.Module) -> bool:
    """Whether somebody looks at each forward or backward, by a hook that no library of models sets."""
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    hooks = [hook for module in model.modules() for name in names for hook in getattr(module, name).values()]
    libraries = ("torch", "transformers", "peft", "footplate")
    if any(getattr(hook, "__module__", "").partition(".")[0] not in libraries for hook in hooks):
        return True
    return any(one._backward_hooks or one._post_accumulate_grad_hooks for one in model.parameters())


def find_problem(trainer: Training, model: nn.Module, loader: Any, found: Longest) -> str:
    """What fails with the longest rows, and how to mend it; empty if nothing does."""
    rows = copy.deepcopy(fetch_rows(loader.dataset, found.indices))  # a collator may take entries out of them
    try:
        batch = collate_rows(loader.collate_fn, rows, found.indices)
    except Exception as error:
        return f"data_collator failed: {rehearsal.describe_failure(error)}."
    facts = describe_batch(trainer, batch, found)
    too_wide = advice.explain_positions(trainer.model, facts.width)
    cut = "cut the longest rows: max_length of your tokenizer or of your data"
    if too_wide and trainer._device.type != "cpu":  # a GPU answers nothing more after such an error
        return f"{facts}.{too_wide} To fix this, {cut}."
    failure = attempt(trainer, model, batch)
    if failure is None:
        return ""
    if not batches.is_out_of_memory(failure):
        reason = rehearsal.describe_failure(failure).rstrip(".")
        return f"{facts}, failed: {reason}.{too_wide} To fix this, {cut}."
    text = f"{type(failure).__name__}: {failure}".partition("\n")[0]
    return (
        f"memory ran out with {facts} ({text}). To fix this, set a smaller per_device_train_batch_size with "
        "more gradient_accumulation_steps, auto_find_batch_size=True or activation_checkpointing=True, or "
        f"{cut}."
    )


def attempt(trainer: Training, model: nn.Module, batch: Any) -> Exception | None:
    """Forward and backward of a batch, undone at once; the error that ended them."""
    run = trainer._current_run
    stage, failure = run.stage, None
    run.begin_update(trainer.state.global_step, 1, may_undo=True)
    try:
        # the first step of the optimizer takes this much for good
        num_bytes = 0 if trainer.optimizer.state else least_bytes(trainer.optimizer)
        room = torch.empty(num_bytes, dtype=torch.uint8, device=trainer._device)
        given = iter([batch])
        micro_batches, num_items = traits.call_positional(
            trainer.get_batch_samples, given, 1, trainer._device
        )
        trainer._accumulate_once(model, micro_batches, num_items)
        del room
    except Exception as error:
        failure = error.with_traceback(None) if batches.is_out_of_memory(error) else error
    run.undo_update()
    run.step_data.release()
    # a keeper of buffers that saw none change would never look again
    run.stage, run.stopwatch, run.buffers = stage, Stopwatch(), BufferKeeper(trainer.model)
    if failure is not None:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return failure
