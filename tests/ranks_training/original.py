"""Jobs that run the same scripts with transformers and with footplate, in the same two processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import transformers
from torch.utils.data import IterableDataset

import footplate
import tiny
from ranks_training import small

LIBRARIES: dict[str, Any] = {"theirs": transformers, "ours": footplate}


class Stream(IterableDataset):
    """Rows that come one after the other, without a length."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __iter__(self) -> Any:
        return iter(self.rows)


def numbers(count: int, seed: int = 1) -> Any:
    """Rows of four numbers with a class each, and nothing else: both libraries drop columns in their way."""
    return small.Rows([{"x": row["x"], "labels": row["labels"]} for row in small.numbers(count, seed).rows])


def metrics(prediction: Any) -> dict[str, float]:
    hits = prediction.predictions.argmax(-1) == prediction.label_ids
    return {"accuracy": float(hits.mean()), "rows": float(len(hits))}


def train(library: Any, folder: Path, checkpoint: Path | None = None, **settings: Any) -> Any:
    """A run with an evaluation in each epoch, and predictions after it."""
    data = settings.pop("data", None) or numbers(29)
    options: Any = {
        "per_device_train_batch_size": 3,
        "per_device_eval_batch_size": 3,
        "num_train_epochs": 2,
        "logging_steps": 2,
        "learning_rate": 0.01,
        "eval_strategy": "epoch",
        **settings,
    }
    trainer = library.Trainer(
        model=small.Classifier(dropout=0.1),
        args=small.arguments(folder, library, **options),
        train_dataset=data,
        eval_dataset=numbers(11, seed=2),
        data_collator=small.collate,
        compute_metrics=metrics,
    )
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    found = {**small.describe(trainer), "predictions": small.plain(trainer.predict(numbers(13)).predictions)}
    return {**found, "tokens": trainer.state.num_input_tokens_seen}


def train_gpt(library: Any, folder: Path, **settings: Any) -> Any:
    """A causal language model: the loss of an update is divided by its tokens on all ranks."""
    options: Any = {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "num_train_epochs": 1,
        "logging_steps": 1,
        "learning_rate": 0.01,
        **settings,
    }
    trainer = library.Trainer(
        model=tiny.gpt(),
        args=small.arguments(folder, library, **options),
        train_dataset=tiny.causal_data(21),
        data_collator=library.default_data_collator,
    )
    trainer.train()
    return {**small.describe(trainer), "tokens": trainer.state.num_input_tokens_seen}


def run_all(library: Any, folder: Path) -> Any:
    """Every case with one library."""
    rows = numbers(29).rows
    return {
        "plain": train(library, folder),
        "accumulated": train(library, folder, gradient_accumulation_steps=3, logging_steps=1),
        "max_steps": train(library, folder, max_steps=7, lr_scheduler_type="cosine", warmup_steps=2),
        "drop_last": train(library, folder, dataloader_drop_last=True),
        "split": train(
            library,
            folder,
            accelerator_config={"split_batches": True},
            per_device_train_batch_size=6,
            per_device_eval_batch_size=6,
        ),
        "stream": train(library, folder, data=Stream(rows), max_steps=11, logging_steps=1),
        "gpt": train_gpt(library, folder, include_num_input_tokens_seen="all"),
        "gpt_own_tokens": train_gpt(library, folder, average_tokens_across_devices=False),
        "gpt_norms": train_gpt(library, folder, max_grad_norm=0.0, weight_decay=0.1),
    }


def theirs(folder: Path) -> Any:
    return run_all(transformers, folder)


def ours(folder: Path) -> Any:
    return run_all(footplate, folder)


# ---- each goes on from checkpoints of the other ----

SAVED: Any = {"save_strategy": "steps", "save_steps": 7, "logging_steps": 1}


def theirs_saved(folder: Path) -> Any:
    return train(transformers, folder, **SAVED)


def ours_saved(folder: Path) -> Any:
    return train(footplate, folder, **SAVED)


def theirs_on_ours(folder: Path) -> Any:
    return train(transformers, folder, folder.parent / "original.ours_saved" / "checkpoint-7", **SAVED)


def ours_on_theirs(folder: Path) -> Any:
    return train(footplate, folder, folder.parent / "original.theirs_saved" / "checkpoint-7", **SAVED)
