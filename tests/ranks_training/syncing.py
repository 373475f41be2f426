"""Jobs that look at gradients between the micro-batches of an update."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor

import footplate
from ranks_training import small

EACH = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}


class Look(footplate.TrainerCallback):
    """Keeps the gradient of a weight as it is after the first micro-batch of each update."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_substep_end(self, args: Any, state: Any, control: Any, model: Any, **kwargs: Any) -> None:
        gradient = next(model.parameters()).grad
        gradient = gradient.full_tensor() if isinstance(gradient, DTensor) else gradient
        self.seen.append(None if gradient is None else gradient.flatten().tolist())


def look(folder: Path, **settings: Any) -> dict[str, Any]:
    """What a short run saw, and its weights."""
    settings = {"max_steps": 2, "gradient_accumulation_steps": 2, "learning_rate": 0.05, **settings}
    args, callback = small.arguments(folder, save_strategy="no", **settings), Look()
    data = {"train_dataset": small.numbers(29), "data_collator": small.collate}
    trainer = footplate.Trainer(small.Classifier(), args, callbacks=[callback], **data)
    trainer.train()
    weight = next(trainer.model.parameters()).detach()
    weight = weight.full_tensor() if isinstance(weight, DTensor) else weight
    assert torch.isfinite(weight).all()
    return {"seen": callback.seen, "weight": weight.flatten().tolist()}


def gradients(folder: Path) -> Any:
    """By DDP and in shards, with and without the setting."""
    return {
        f"{name}, {when}": look(folder / f"{name}_{when}", **settings, **config)
        for name, settings in {"ddp": {}, "fsdp": {"fsdp": "full_shard"}}.items()
        for when, config in {"last": {}, "each": {"accelerator_config": EACH}}.items()
    }
