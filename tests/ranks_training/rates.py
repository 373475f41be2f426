"""Jobs that look for a learning rate, and train afterwards."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

import footplate
from ranks_training import small


def sweep(folder: Path) -> Any:
    """What is found, by two micro-batches of each of two processes, or four of one."""
    args = small.arguments(
        folder, per_device_train_batch_size=4, gradient_accumulation_steps=4 // small.NUM_RANKS, max_steps=6
    )
    trainer = footplate.Trainer(
        small.Classifier(), args, train_dataset=small.numbers(64), data_collator=small.collate
    )
    return trainer.find_learning_rate(1e-4, 10.0, 30).to_dict()


def trained(folder: Path, sweeps: bool) -> Any:
    """The log and the weights of a run, after a sweep or without one."""
    args = small.arguments(folder, gradient_accumulation_steps=2, max_steps=6, logging_steps=1)
    torch.manual_seed(3)
    trainer = footplate.Trainer(
        small.Classifier(dropout=0.3), args, train_dataset=small.numbers(51), data_collator=small.collate
    )
    if sweeps:
        before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        trainer.find_learning_rate(1e-4, 1e-1, 20)
        # one that is left would exchange gradients a second time
        assert not [one for one in gc.get_objects() if type(one) is DistributedDataParallel]
        assert all(torch.equal(value, before[name]) for name, value in trainer.model.state_dict().items())
    trainer.train()
    weights = {name: value.tolist() for name, value in trainer.model.state_dict().items()}
    random = torch.get_rng_state().tolist()
    return {"history": small.history(trainer), "weights": weights, "random": random}


def swept(folder: Path) -> Any:
    return trained(folder, sweeps=True)


def plain(folder: Path) -> Any:
    return trained(folder, sweeps=False)


def refusal(folder: Path, num_steps: int, **settings: Any) -> str:
    """What a sweep says, after so many updates of a run."""
    args = small.arguments(folder, max_steps=max(num_steps, 1), **settings)
    trainer = footplate.Trainer(
        small.Classifier(), args, train_dataset=small.numbers(16), data_collator=small.collate
    )
    if num_steps:
        trainer.train()
    try:
        trainer.find_learning_rate()
    except ValueError as error:
        return str(error)
    return ""


def late(folder: Path) -> Any:
    return refusal(folder, 2)


def cut(folder: Path) -> Any:
    return refusal(folder, 0, fsdp="full_shard")
