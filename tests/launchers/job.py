"""Trains a tiny model with footplate, however it is started, and writes what each rank saw as JSON.

    python job.py FOLDER [NAME=VALUE ...]

Results go to `FOLDER/results`, the run itself to `FOLDER/run`; further words are arguments of the run.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed
from torch import nn

from footplate import Trainer, TrainingArguments

NUM_ROWS, NUM_EVAL_ROWS = 24, 7  # an epoch is 3 updates of 8 rows; the evaluation does not divide by 2

LAUNCHERS_SET = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class Model(nn.Module):
    """A line with two inputs, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1)
        self.register_buffer("scale", torch.ones(1))
        with torch.no_grad():
            self.linear.weight.copy_(torch.tensor([[0.5, -0.25]]))
            self.linear.bias.zero_()

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        """The loss, if there are labels, and the predictions."""
        logits = self.linear(x).squeeze(-1) * self.scale
        return (
            {"logits": logits}
            if labels is None
            else {"loss": ((logits - labels) ** 2).mean(), "logits": logits}
        )


def make_rows(num_rows: int, seed: int) -> list[dict[str, Any]]:
    """Points near a plane."""
    x = torch.randn(num_rows, 2, generator=torch.Generator().manual_seed(seed))
    return [{"x": row, "labels": 2 * row[0] - row[1] + 1} for row in x]


def build_trainer(folder: Path, **settings: Any) -> Trainer:
    """The Trainer as a script of any user makes it; nothing here knows of a launcher."""
    common = {
        **{"num_train_epochs": 2, "learning_rate": 0.1, "save_strategy": "epoch", "logging_steps": 1},
        **{"per_device_train_batch_size": 8, "per_device_eval_batch_size": 2},
        "accelerator_config": {"split_batches": True},  # the same numbers with any number of processes
        **{"report_to": "none", "disable_tqdm": True},
    }
    return Trainer(
        model=Model(),
        args=TrainingArguments(output_dir=str(folder), **{**common, **settings}),
        train_dataset=make_rows(NUM_ROWS, seed=0),
        eval_dataset=make_rows(NUM_EVAL_ROWS, seed=1),
        compute_metrics=lambda prediction: {
            "rows": float(len(prediction.predictions)),
            "error": float(np.abs(prediction.predictions - prediction.label_ids).max()),
        },
    )


def describe_arguments(args: TrainingArguments) -> dict[str, Any]:
    """What the arguments say about the place of this process."""
    names = ("world_size", "process_index", "local_process_index", "should_save", "should_log")
    return {**{name: getattr(args, name) for name in names}, "parallel_mode": args.parallel_mode.value}


def ask_accelerator(trainer: Trainer) -> dict[str, Any]:
    """What code of users asks the Accelerator, as JSON."""
    accelerator = trainer.accelerator
    names = (
        "num_processes",
        "process_index",
        "local_process_index",
        "is_main_process",
        "is_local_main_process",
    )
    other = accelerator.prepare_model(Model())
    row = torch.full((1, 2), float(accelerator.process_index))
    other(row)["logits"].sum().backward()
    inner = accelerator.unwrap_model(other)
    mine = torch.tensor([[10.0 * accelerator.process_index], [10.0 * accelerator.process_index + 1]])
    return {
        **{name: getattr(accelerator, name) for name in names},
        "gathered": accelerator.gather_for_metrics(mine).flatten().tolist(),
        "reduced": accelerator.reduce(torch.ones(1), "sum").item(),
        "unwraps": accelerator.unwrap_model(trainer.model_wrapped) is trainer.model,
        "prepared": type(other).__name__,
        "gradient": inner.linear.weight.grad.flatten().tolist(),
    }


def enter_in_order(args: TrainingArguments, file: Path, local: bool) -> bool:
    """Whether the main process was done with its block when this process entered its own."""
    with args.main_process_first(local=local, desc="a file"):
        if args.process_index == 0:
            time.sleep(0.3)
            file.touch()
        return file.exists()


def look(trainer: Trainer) -> dict[str, Any]:
    """The results of evaluate() and predict()."""
    clocks = ("runtime", "per_second", "preparation_time")
    metrics = {key: value for key, value in trainer.evaluate().items() if not key.endswith(clocks)}
    return {"metrics": metrics, "predictions": trainer.predict(trainer.eval_dataset).predictions.tolist()}


def train(trainer: Trainer, resume: Any = None) -> dict[str, Any]:
    """Evaluate, train, and evaluate again."""
    before = look(trainer)
    wrapped_before = type(trainer.model_wrapped).__name__
    trainer.train(resume_from_checkpoint=resume)
    history = [entry for entry in trainer.state.log_history if "grad_norm" in entry]
    return {
        "before": before,
        "wrapped": [wrapped_before, type(trainer.model_wrapped).__name__],
        "losses": [entry["loss"] for entry in history],
        "norms": [entry["grad_norm"] for entry in history],
        "rates": [entry["learning_rate"] for entry in history],
        "weights": {name: tensor.tolist() for name, tensor in trainer.model.state_dict().items()},
        "steps": trainer.state.global_step,
        "zero": [trainer.is_world_process_zero(), trainer.is_local_process_zero()],
        "after": look(trainer),
    }


def main(folder: Path, **settings: Any) -> dict[str, Any]:
    """Everything, twice in one process; returns and writes what this rank saw."""
    standing = torch.distributed.group.WORLD if torch.distributed.is_initialized() else None
    variables = set(os.environ)
    resume = settings.pop("resume", None)
    trainer = build_trainer(folder / "run", **settings)
    args, results = trainer.args, folder / "results"
    results.mkdir(parents=True, exist_ok=True)
    seen = {
        "process": os.getpid(),
        "arguments": describe_arguments(args),
        "in order": [enter_in_order(args, results / f"local-{local}", local) for local in (False, True)],
        "accelerator": ask_accelerator(trainer),
        "first": train(trainer, resume),
        "accelerator after": ask_accelerator(trainer),
        "checkpoints": sorted(path.name for path in (folder / "run").glob("checkpoint-*")),
    }
    if resume is None:
        seen["second"] = train(build_trainer(folder / "run" / "again", **settings))
    if standing is not None:
        seen["keeps group"] = torch.distributed.group.WORLD is standing
        seen["new variables"] = sorted(name for name in set(os.environ) - variables if name in LAUNCHERS_SET)
    (results / f"{args.process_index}.json").write_text(json.dumps(seen), encoding="utf-8")
    return seen


def read_words(words: list[str]) -> dict[str, Any]:
    """Words such as `seed=3` or `save_on_each_node=true` as arguments."""
    pairs = (word.split("=", 1) for word in words)
    return {name: json.loads(value) for name, value in pairs}


if __name__ == "__main__":
    main(Path(sys.argv[1]), **read_words(sys.argv[2:]))
