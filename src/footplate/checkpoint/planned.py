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
    disk_needed: int
    disk_free: int


def plan_checkpoints(
    model: nn.Module, args: TrainingArguments, optimizer_bytes: int, num_updates: int, updates_per_epoch: int
) -> Checkpoints:
    """The checkpoints of a run of so many updates."""
    num_written = count_saves(args, num_updates, updates_per_epoch)
    num_kept = num_written
    if args.save_total_limit is not None:
        has_best = args.metric_for_best_model is not None  # the best and the latest always stay
        num_kept = min(num_written, max(args.save_total_limit, 2 if has_best else 1))
    weights = count_saved_weights(model)
    num_bytes = weights + SMALL_FILES
    if not args.save_only_model:
        num_bytes += optimizer_bytes
    if args.save_full_model and args.fsdp:
        num_bytes += weights
    # an older one is removed when the new one is whole
    on_disk = min(num_kept + 1, num_written)
    return Checkpoints(num_bytes, num_written, num_kept, on_disk * num_bytes, find_free(str(args.output_dir)))


def count_saves(args: TrainingArguments, num_updates: int, updates_per_epoch: int) -> int:
    """Saves of a run; with `save_strategy="best"`, as many as there can be."""
    strategy = str(getattr(args.save_strategy, "value", args.save_strategy))
    if strategy == "best":
        evaluated = str(getattr(args.eval_strategy, "value", args.eval_strategy))
        return _count(evaluated, args.eval_steps or args.logging_steps, num_updates, updates_per_epoch)
    return _count(strategy, args.save_steps, num_updates, updates_per_epoch)


def _count(strategy: str, interval: float, num_updates: int, updates_per_epoch: int) -> int:
    if strategy == "epoch":
        return math.ceil(num_updates / max(updates_per_epoch, 1))
    if strategy != "steps":
        return 0
    steps = math.ceil(num_updates * interval) if 0 < interval < 1 else int(interval)
    return math.ceil(num_updates / max(steps, 1))  # the last update is always among them


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
