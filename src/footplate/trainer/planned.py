"""What a Trainer hands to the planner: its model, one of its batches, its loss, its optimizer."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import nn

from footplate import rng
from footplate.batch import find_length
from footplate.optim import schedules
from footplate.optim.names import find_optimizer
from footplate.planning import RunPlan, plan_run
from footplate.training import loss as losses
from footplate.training import patches

if TYPE_CHECKING:
    from footplate.trainer.api import TrainerApi


def plan_training_of(trainer: TrainerApi, batch: Any = None, **wanted: Any) -> RunPlan:
    """The plan of the run that `train()` would make.

    Args:
        trainer: The Trainer, which stays as it is but for activation checkpointing, which `train()` turns on.
        batch: One micro-batch; default: the first of the training data.
        **wanted: Arguments of `plan_run`, such as `world_size`.
    """

    def step(model: nn.Module, inputs: Any) -> Any:
        return losses.call_compute_loss(
            trainer.compute_loss, model, trainer._prepare_inputs(inputs), True, None
        )

    patches.enable_recompute(trainer.model, trainer.args)
    loader = trainer.get_train_dataloader()
    if batch is None:
        with rng.scoped():  # a run after this must draw the same numbers as without it
            batch = next(iter(loader))
    return plan_run(
        trainer.model,
        trainer.args,
        batch,
        num_rows=trainer.num_examples(loader) if find_length(loader) is not None else None,
        step=step,
        optimizer=describe_optimizer(trainer),
        build_schedule=partial(schedules.build_schedule, trainer.args),
        num_eval_rows=count_eval_rows(trainer) if trainer.args.eval_strategy != "no" else 0,
        **wanted,
    )


def describe_optimizer(trainer: TrainerApi) -> tuple[Any, dict[str, Any]]:
    """The class of the optimizer, and its arguments besides the parameters."""
    optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)  # without Accelerate's wrapper
    if optimizer is not None:
        known = inspect.signature(type(optimizer)).parameters
        return type(optimizer), {name: value for name, value in optimizer.defaults.items() if name in known}
    if trainer.optimizer_cls_and_kwargs is not None:
        return trainer.optimizer_cls_and_kwargs
    return find_optimizer(trainer.args, trainer.model)


def count_eval_rows(trainer: TrainerApi) -> int:
    """Rows that one evaluation predicts, over all sets."""
    found = trainer.eval_dataset
    sets = found.values() if isinstance(found, dict) else [] if found is None else [found]
    sizes = [find_length(dataset) or 0 for dataset in sets]
    limit = trainer.args.max_eval_samples
    return sum(size if limit is None else min(size, limit) for size in sizes)
