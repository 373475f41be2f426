"""The longest rows before the first update of a long run: memory ends there first, and so do positions."""

from __future__ import annotations

import gc
import logging
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from footplate import rng
from footplate.data.longest import Longest
from footplate.data.plain_rows import copy_rows, holds_lists, runs_no_code
from footplate.data.worker_reads import collate_rows, fetch_rows
from footplate.trainer.largest_batch import choose_longest, describe_batch
from footplate.trainer.rehearsing import least_bytes
from footplate.training import advice, batches, rehearsal, traits
from footplate.training.buffers import BufferKeeper
from footplate.training.keeping import KeptObjects, weights_of
from footplate.training.stopwatch import Stopwatch

if TYPE_CHECKING:
    from footplate.trainer.training import Training

logger = logging.getLogger(__name__)

SECONDS = 0.3  # of reading a list of rows; a table tells all lengths at once
WEIGHT_BYTES = 2**30  # of more weights only changes are noticed, since hardly any forward writes to them

_JOINTS = (
    *("training_step", "compute_loss", "compute_loss_context_manager", "autocast_smart_context_manager"),
    *("get_train_dataloader", "get_batch_samples", "_prepare_inputs", "_prepare_input"),
    *("_get_num_items_in_batch", "floating_point_ops", "_track_num_input_tokens"),
    *("_prepare_context_parallel_inputs", "_get_train_sampler"),  # which may leave rows out
)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_LIBRARIES = ("torch", "transformers", "peft", "footplate")


def try_longest(trainer: Training, model: nn.Module, loader: Any) -> None:
    """Forward and backward of the longest rows; what fails is a warning. The run is the same as without."""
    if not tries_longest(trainer):
        return
    with rng.scoped():
        try:
            if is_watched(trainer.model):
                return
            found = choose_longest(trainer, loader, SECONDS)
            if found is None or not found.shortest:  # where all rows are as long, the first update tells
                return
            if holds_lists(trainer.train_dataset):  # copied again for each batch, but refused before
                copy_rows(fetch_rows(loader.dataset, [*found.indices, *found.shortest]))
            kept = keep_touched(trainer)
        except Exception as reason:  # the run itself may do nothing of all this
            logger.info("The longest rows were not tried before training: %s.", reason)
            return
        try:
            problem = find_problem(trainer, model, loader, found)
        except Exception as reason:  # of telling; what fails in the trial is returned
            problem = ""
            logger.info("The longest rows were tried before training, and cannot be told of: %s.", reason)
        finally:
            kept.put_back()
    # a keeper that saw no change would never look again, and forward may have made buffers that are gone now
    trainer._current_run.buffers = BufferKeeper(trainer.model)
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
        args.world_size == 1
        and args.sharding is None
        and not trainer._strategy.is_scaled  # the trial would make the scaler's scale
        and run.compiles is None  # another shape would be compiled first
        and args.skip_memory_metrics  # else the most memory of the run is a metric
        and not args.auto_find_batch_size  # which mends what the trial would find
        and args.per_device_train_tokens is None  # the batch with the longest row comes first by itself
        and "lomo" not in args.optim  # steps in backward
        and all(traits.is_ours(getattr(trainer, name)) for name in _JOINTS)
        and runs_no_code(trainer.train_dataset)
    )


def is_watched(model: nn.Module) -> bool:
    """Whether a forward more would be noticed: by hooks, by what counts operations, or by a compiler."""
    if any(getattr(torch_module, f"_global{name}") for name in _HOOKS):
        return True
    modules = list(model.modules())
    hooks = [hook for module in modules for name in _HOOKS for hook in getattr(module, name).values()]
    if any(str(getattr(hook, "__module__", "")).partition(".")[0] not in _LIBRARIES for hook in hooks):
        return True
    if any(is_compiled(module) for module in modules):
        return True
    if any(one._backward_hooks or one._post_accumulate_grad_hooks for one in model.parameters()):
        return True
    return _is_recorded()


def is_compiled(module: Any) -> bool:
    """Whether torch compiles a module for the shapes that it sees first, or runs it outside of Python."""
    marks = (getattr(module, "_orig_mod", None), getattr(module, "_compiled_call_impl", None))
    return marks != (None, None) or isinstance(module, torch.jit.ScriptModule)


def _is_recorded() -> bool:
    """Whether a mode or profiler of torch sees each operation, or somebody the tensors for backward."""
    # names that another version of torch may not have: then nothing is tried
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._device import DeviceContext
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    stack = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    modes = [mode for mode in stack if type(mode) is not DeviceContext]
    saved = torch._C._autograd._top_saved_tensors_default_hooks(True)
    is_profiled = torch.autograd._profiler_enabled()  # type: ignore[attr-defined]
    return bool(modes or _get_current_dispatch_mode_stack() or is_profiled or saved is not None)


def keep_touched(trainer: Training) -> KeptObjects:
    """The state of the user's objects that a forward and backward may change."""
    functions = (trainer.compute_loss_func, trainer.label_smoother, trainer.preprocess_logits_for_metrics)
    return KeptObjects(
        [trainer.model, trainer.data_collator, *functions],
        weights_of(trainer.model, None),
        without=[trainer._current_run],  # a signal may come meanwhile, and a loss may refer to the trainer
        weight_bytes=WEIGHT_BYTES,
        is_careful=True,
    )


def find_problem(trainer: Training, model: nn.Module, loader: Any, found: Longest) -> str:
    """What fails with the longest rows alone, and how to mend it; empty if nothing does."""
    batch, failure = read_batch(trainer, loader, found.indices)
    rows = f"rows {advice.join_names([str(row) for row in found.indices])} of train_dataset"
    if failure is not None:
        if fails_anyway(trainer, model, loader, found.shortest):
            return ""
        return f"{rows} make no batch: {rehearsal.describe_failure(failure).rstrip('.')}."
    facts = describe_batch(trainer, batch, found)
    too_wide = advice.explain_positions(trainer.model, facts.width)
    cut = "cut the longest rows: max_length of your tokenizer or of your data"
    if too_wide and trainer._device.type != "cpu":  # a GPU answers nothing more after such an error
        return f"{facts}.{too_wide} To fix this, {cut}."
    failure = attempt(trainer, model, batch)
    if failure is None:
        return ""
    if batches.is_out_of_memory(failure):
        text = f"{type(failure).__name__}: {failure}".partition("\n")[0]
        return (
            f"memory ran out with {facts} ({text}). To fix this, set a smaller per_device_train_batch_size "
            "with more gradient_accumulation_steps, auto_find_batch_size=True or "
            f"activation_checkpointing=True, or {cut}."
        )
    reason = rehearsal.describe_failure(failure).rstrip(".")
    if too_wide:
        return f"{facts}, failed: {reason}.{too_wide} To fix this, {cut}."
    if fails_anyway(trainer, model, loader, found.shortest):
        return ""
    return f"{facts}, failed: {reason}, and the shortest rows did not. To fix this, look at {rows}, or {cut}."


def fails_anyway(trainer: Training, model: nn.Module, loader: Any, indices: Sequence[int]) -> bool:
    """Whether other rows fail too: then the first update tells, or what they need is made until then."""
    batch, failure = read_batch(trainer, loader, indices)
    return failure is not None or attempt(trainer, model, batch) is not None


def read_batch(trainer: Training, loader: Any, indices: Sequence[int]) -> tuple[Any, Exception | None]:
    """The batch of these rows, or the error that ended reading or collating them."""
    try:
        rows = fetch_rows(loader.dataset, list(indices))
        if holds_lists(trainer.train_dataset):
            rows = copy_rows(rows)  # a collator may take entries out of them
        return collate_rows(loader.collate_fn, rows, list(indices)), None
    except Exception as error:
        return None, error


def attempt(trainer: Training, model: nn.Module, batch: Any) -> Exception | None:
    """Forward and backward of a batch, undone at once; the error that ended them."""
    run = trainer._current_run
    stage, failure = run.stage, None
    run.begin_update(trainer.state.global_step, 1, may_undo=True)
    try:
        # the first step of the optimizer takes this much for good
        num_bytes = 0 if trainer.optimizer.state else least_bytes(trainer.optimizer)
        room = torch.empty(num_bytes, dtype=torch.uint8, device=trainer._device)
        if trainer.args.gradient_accumulation_steps > 1:  # later micro-batches find gradients there
            for parameter in filter(attrgetter("requires_grad"), run.parameters):
                parameter.grad = torch.zeros_like(parameter)
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
    run.stage, run.stopwatch = stage, Stopwatch()
    if failure is not None:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return failure
