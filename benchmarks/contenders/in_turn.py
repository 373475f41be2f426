"""Footplate and the loop of `ddp_loop.py` in the same processes, some updates of each in turn.

A minute in which the machine is busy hits both, so the ratio of neighbouring blocks is steady where the times
of two processes that run one after the other are not.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from copy import deepcopy
from itertools import pairwise
from pathlib import Path

import torch
from footplate import Trainer, TrainingArguments
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, DistributedSampler

from workloads import Row, read_settings

NUM_BLOCKS = 60  # of each

settings, model, rows, clock = read_settings()
block_steps = (settings.steps - 1) // NUM_BLOCKS
args = TrainingArguments(
    output_dir=settings.output_dir,
    max_steps=settings.steps,
    per_device_train_batch_size=settings.batch_size,
    learning_rate=settings.learning_rate,
    weight_decay=settings.weight_decay,
    max_grad_norm=settings.max_grad_norm,
    eval_strategy="no",
    logging_strategy="no",
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
    ddp_find_unused_parameters=settings.finds_unused,
)


def update_by_hand() -> Iterator[None]:
    """The loop of `ddp_loop.py`, which waits after each update."""
    own = deepcopy(model)
    parameters = list(own.parameters())
    # the Trainer's default is to look for unused parameters, and so does the loop then
    parallel = DistributedDataParallel(
        own, gradient_as_bucket_view=True, find_unused_parameters=settings.finds_unused is not False
    )
    sampler = DistributedSampler(rows, shuffle=True, seed=0)
    loader = DataLoader(rows, batch_size=settings.batch_size, sampler=sampler, collate_fn=clock)
    optimizer = torch.optim.AdamW(
        parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )
    scheduler = LambdaLR(optimizer, lambda step: max(0.0, 1.0 - step / settings.steps))
    for batch in loader:
        batch = {name: column.to("cpu") for name, column in batch.items()}
        parallel(**batch)["loss"].backward()
        torch.nn.utils.clip_grad_norm_(parameters, settings.max_grad_norm, foreach=True)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        yield


class Turns:
    """The Trainer's collator: times blocks of its updates, and makes as many by hand between them.

    A callback could not stand here: processes agree after each update on what callbacks of a user want.
    """

    def __init__(self) -> None:
        self.by_hand = update_by_hand()
        self.blocks: list[tuple[float, float]] = []
        self.num_calls = 0
        self.began = 0.0

    def __call__(self, rows: list[Row]) -> Row:
        if self.num_calls and self.num_calls % block_steps == 0:
            self.change_sides()
        self.num_calls += 1
        return clock(rows)

    def change_sides(self) -> None:
        """End a block, make one by hand, begin the next."""
        torch.distributed.barrier()  # what the other process still has to do is not the neighbour's
        own = time.process_time() - self.began
        start = time.process_time()
        for _ in range(block_steps):
            next(self.by_hand)
        torch.distributed.barrier()
        self.began = time.process_time()
        self.blocks.append((own / block_steps, (self.began - start) / block_steps))


turns = Turns()
Trainer(model=model, args=args, data_collator=turns, train_dataset=rows).train()
blocks = turns.blocks[2:]  # the first ones warm up
# a block of ours lies between two by hand, before it and after it
figures = {
    "step_cpu": [own for own, _ in blocks[1:]],
    "hand_cpu": [hand for _, hand in blocks[1:]],
    "ratio": [2 * own / (before + after) for (_, before), (own, after) in pairwise(blocks)],
}
Path(settings.output_dir, f"rank-{args.process_index}.json").write_text(json.dumps(figures), encoding="utf-8")
