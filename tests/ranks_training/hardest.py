"""Jobs that look for the hardest rows with several processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import footplate
from ranks_training import small


def build(folder: Path, kind: Any = footplate.Trainer, **settings: Any) -> Any:
    """A trainer with rows that do not divide by the number of processes and the batch."""
    args = small.arguments(folder, max_steps=4, learning_rate=0.05, per_device_eval_batch_size=3, **settings)
    return kind(small.Classifier(), args, train_dataset=small.numbers(29), data_collator=small.collate)


def describe(found: Any) -> dict[str, Any]:
    """What was found, and the place of each row."""
    rows, losses = [row["row"] for row in found.rows], [row["loss"] for row in found.rows]
    indices = found.indices.tolist()
    return {"rows": rows, "top": losses, "indices": indices, "losses": found.losses.tolist()}


def shared(folder: Path) -> Any:
    """Each rank takes batches in turn; the losses by hand are of the same weights."""
    trainer = build(folder, hardest_rows=5)
    trainer.train()
    found = trainer.find_hardest_rows(5)
    model, rows = trainer.model.eval(), small.numbers(29).rows
    with torch.no_grad():
        alone = [float(model(row["x"][None], row["labels"][None])["loss"]) for row in rows]
    return {**describe(found), "alone": alone, "passes": found.passes}


def sharded(folder: Path) -> Any:
    """With parts of the weights on each rank, all of them pass the same rows."""
    trainer = build(folder, hardest_rows=5, fsdp="full_shard")
    trainer.train()
    return describe(trainer.find_hardest_rows(5))


class Doubling(footplate.Trainer):
    """Doubles the loss of batches with row 13, so that one rank alone sees that a formula is wrong."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        is_odd = bool((inputs["x"] == small.numbers(29).rows[13]["x"].to(loss.device)).all(-1).any())
        loss = loss * 2 if is_odd else loss
        return (loss, outputs) if return_outputs else loss


def uneven(folder: Path) -> Any:
    """One rank falls back to single rows, and so does the other one."""
    trainer = build(folder, Doubling)
    found = trainer.find_hardest_rows(5)
    return {**describe(found), "passes": found.passes}


class Failing(footplate.Trainer):
    """Fails on row 13, which one rank alone has."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        if not model.training and bool((inputs["x"] == small.numbers(29).rows[13]["x"]).all(-1).any()):
            raise RuntimeError("row 13 has no loss")
        return super().compute_loss(model, inputs, return_outputs, **kwargs)


def failing(folder: Path) -> Any:
    """An error on one rank is raised on both; at the end of a run it is a warning."""
    trainer = build(folder, Failing, hardest_rows=5)
    step = trainer.train().global_step
    try:
        trainer.find_hardest_rows(5)
    except RuntimeError as error:
        return {"step": step, "error": str(error)}
    return {"step": step, "error": None}
