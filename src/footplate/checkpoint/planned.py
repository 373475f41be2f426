"""How many checkpoints a run writes, how large they are, and whether the disk has room for them."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn

from footplate.wrappers import is_adapter

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

SMALL_FILES = 30_000  # generators, schedule, settings, state, manifest


class Checkpoints(NamedTuple):
    """The checkpoints of a run; sizes in bytes."""

    num_bytes: int  # of one
    num_written: int
    num_kept: int
    disk_needed: int  # beside what is there already
    disk_free: int
    num_present: int = 0


def plan_checkpoints(
    model: nn.Module,
    args: TrainingArguments,
    optimizer_bytes: int,
    num_updates: int,
    updates_per_epoch: int,
    first_step: int = 0,
    num_present: int = 0,
) -> Checkpoints:
    """The checkpoints of a run of so many updates.

    Args:
        model: Whose weights are saved.
        args: The settings.
        optimizer_bytes: The size of the optimizer's state.
        num_updates: The last update.
        updates_per_epoch: How many make an epoch.
        first_step: Updates that were made before, by the run that is resumed.
        num_present: Its checkpoints that are on the disk, and will be removed as new ones come.
    """
    num_written = count_saves(args, num_updates, updates_per_epoch, first_step)
    num_kept = num_present + num_written
    if args.save_total_limit is not None and args.save_total_limit > 0:
        has_best = args.metric_for_best_model is not None  # the best and the latest always stay
        num_kept = min(num_kept, max(args.save_total_limit, 2 if has_best else 1))
    weights = count_saved_weights(model)
    num_bytes = weights + SMALL_FILES
    if not args.save_only_model:
        num_bytes += optimizer_bytes
    if args.save_full_model and args.fsdp:
        num_bytes += weights
    # an older one is removed when the new one is whole
    on_disk = min(num_kept + 1, num_present + num_written)
    needed = max(on_disk - num_present, min(num_written, 1)) * num_bytes
    free = find_free(str(args.output_dir))
    return Checkpoints(num_bytes, num_written, num_kept, needed, free, num_present)


def count_saves(
    args: TrainingArguments, num_updates: int, updates_per_epoch: int, first_step: int = 0
) -> int:
    """Saves of a run after its first step; with `save_strategy="best"`, as many as there can be."""
    strategy = str(getattr(args.save_strategy, "value", args.save_strategy))
    if strategy == "best":
        evaluated = str(getattr(args.eval_strategy, "value", args.eval_strategy))
        strategy, interval = evaluated, args.eval_steps or args.logging_steps
    else:
        interval = args.save_steps
    if strategy not in ("epoch", "steps") or first_step >= num_updates:
        return 0
    if strategy == "epoch":
        steps = updates_per_epoch
    else:
        steps = math.ceil(num_updates * interval) if 0 < interval < 1 else int(interval)
    steps = max(steps, 1)
    return math.ceil(num_updates / steps) - first_step // steps  # the last update is always among them


def count_saved_weights(model: nn.Module) -> int:
    """The bytes of the weights that are written: shared ones once; of adapters only these."""
    if is_adapter(model):
        return sum(value.nbytes for value in model.parameters() if value.requires_grad)
    # not by state_dict(): a model may have one of its own, which takes no arguments, or copies everything
    saved = [*model.parameters(), *find_saved_buffers(model)]
    return sum({id(value): value.nbytes for value in saved}.values())


def find_saved_buffers(model: nn.Module) -> list[torch.Tensor]:
    """The buffers that belong to the state of a model."""
    found = []
    for module in model.modules():
        skipped = getattr(module, "_non_persistent_buffers_set", ())
        found += [value for name, value in module.named_buffers(recurse=False) if name not in skipped]
    return found


def find_free(folder: str) -> int:
    """Free bytes of the disk that a folder is on, or will be on."""
    path = Path(folder).absolute()
    return shutil.disk_usage(next(parent for parent in (path, *path.parents) if parent.exists())).free
