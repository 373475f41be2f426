"""Blocks of updates by the expert's loop and by a Trainer, in turn."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from copy import deepcopy
from itertools import pairwise
from typing import Any

from torch import nn

from beside import expert
from workloads import Row, Settings, stack_rows

NUM_WARM_UP_BLOCKS = 2


class Turns:
    """Times blocks of a Trainer's updates, and lets the expert make as many between them.

    It is the Trainer's collator. footplate warns that a checkpoint cannot hold the loop it has inside.
    """

    def __init__(self, by_expert: Iterator[None], block_steps: int) -> None:
        self.by_expert, self.block_steps = by_expert, block_steps
        self.blocks: list[tuple[float, float]] = []  # CPU seconds per update: the Trainer's, the expert's
        self.num_calls = 0
        self.began = 0.0

    def __call__(self, rows: list[Row]) -> Row:
        if self.num_calls and self.num_calls % self.block_steps == 0:
            self.change_sides()
        self.num_calls += 1
        return stack_rows(rows)

    def change_sides(self) -> None:
        """End a block, let the expert make one, begin the next."""
        start = time.process_time()
        own = start - self.began
        for _ in range(self.block_steps):
            next(self.by_expert)
        self.began = time.process_time()
        self.blocks.append((own / self.block_steps, (self.began - start) / self.block_steps))

    def report(self) -> dict[str, list[float]]:
        """Both sides' seconds per update, and the ratio of each block to the expert's before and after it."""
        blocks = self.blocks[NUM_WARM_UP_BLOCKS:]
        return {
            "footplate": [own for own, _ in blocks[1:]],
            "expert": [other for _, other in blocks[1:]],
            "ratio": [2 * own / (before + after) for (_, before), (own, after) in pairwise(blocks)],
        }


def train_in_turn(
    library: str, model: nn.Module, rows: Any, settings: Settings, num_blocks: int
) -> dict[str, list[float]]:
    """Train two copies of a model, one by the Trainer of a library, and report the blocks."""
    api = importlib.import_module(library)
    by_expert = expert.train(deepcopy(model), rows, stack_rows, settings)
    turns = Turns(by_expert, block_steps=(settings.steps - 1) // num_blocks)
    args = api.TrainingArguments(
        output_dir=settings.output_dir,
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        lr_scheduler_type="linear",
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    api.Trainer(model=model, args=args, data_collator=turns, train_dataset=rows).train()
    return turns.report()
