"""One run that logs at every update: what an update and its line cost when so many lines are there."""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise

import torch
from footplate import Trainer, TrainingArguments

from workloads import Row, build_classes, stack_rows

BATCH_SIZE = 8


class Marks:
    """A collator that reads the CPU time before some updates."""

    def __init__(self, marks: list[int]) -> None:
        self.marks, self.num_calls = frozenset(marks), 0
        self.readings: list[float] = []

    def __call__(self, rows: list[Row]) -> Row:
        if self.num_calls in self.marks:
            self.readings.append(time.process_time())
        self.num_calls += 1
        return stack_rows(rows)


choices = json.loads(sys.argv[1])
sizes: list[int] = choices["sizes"]
torch.manual_seed(0)
# what a line costs when there are 1,000 is that of lines 500 to 1,000
pairs = [(size // 2, size) for size in sizes]
# batches are read one ahead: one more update lets the last mark be read after the line before it
steps = max(sizes) + 2
model, rows = build_classes(steps * BATCH_SIZE)
marks = Marks([mark for pair in pairs for mark in pair])
args = TrainingArguments(
    choices["output_dir"],
    max_steps=steps,
    per_device_train_batch_size=BATCH_SIZE,
    logging_strategy="steps" if choices["logs"] else "no",
    logging_steps=1,
    save_strategy="no",
    report_to="none",
    use_cpu=True,
)
Trainer(model=model, args=args, data_collator=marks, train_dataset=rows).train()
ended = time.process_time()
spans = list(pairwise(marks.readings))[::2]
result = {
    str(size): [(end - start) / (size - size // 2)] for size, (start, end) in zip(sizes, spans, strict=True)
}
print()
print(json.dumps(result | {"end": [ended - marks.readings[-1]]}))
