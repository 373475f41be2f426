"""One run that saves after every update and keeps all or many: what a save costs when so many are there."""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise
from typing import Any

import torch
from footplate import Trainer, TrainerCallback, TrainingArguments

from workloads import build_classes, stack_rows

BATCH_SIZE = 8


class Marks(TrainerCallback):
    """Reads the CPU time after some saves."""

    def __init__(self, marks: list[int]) -> None:
        self.marks = frozenset(marks)
        self.readings: list[float] = []

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A save was asked for; writing may still be under way."""
        if state.global_step in self.marks:
            self.readings.append(time.process_time())


choices = json.loads(sys.argv[1])
sizes: list[int] = choices["sizes"]
torch.manual_seed(0)
# what a save costs when 1,000 are there is the mean of those that follow, up to 1,500
ends = [size + max(4, size // 2) for size in sizes]
model, rows = build_classes(max(ends) * BATCH_SIZE)
marks = Marks([*sizes, *ends])
args = TrainingArguments(
    choices["output_dir"],
    max_steps=max(ends),
    per_device_train_batch_size=BATCH_SIZE,
    logging_strategy="no",
    save_strategy="steps",
    save_steps=1,
    save_total_limit=choices["limit"],
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
)
Trainer(model=model, args=args, data_collator=stack_rows, train_dataset=rows, callbacks=[marks]).train()
spans = list(pairwise(marks.readings))[::2]
cost = {
    str(size): [(stop - start) / (end - size)]
    for size, end, (start, stop) in zip(sizes, ends, spans, strict=True)
}
print(json.dumps(cost))
