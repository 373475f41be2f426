"""One save of a tiny model when so many lines were logged before: CPU seconds of an update with a save."""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise
from typing import Any

import torch
from footplate import Trainer, TrainerCallback, TrainingArguments

from workloads import build_classes, stack_rows

BATCH_SIZE, NUM_SAVES = 8, 6


class History(TrainerCallback):
    """Puts lines into the history as a long run would have, and reads the CPU time before each update."""

    def __init__(self, num_lines: int) -> None:
        self.num_lines = num_lines
        self.readings: list[float] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """As if so many updates had been logged."""
        state.log_history.extend(
            {"loss": 1 / (step + 3), "grad_norm": 0.7, "learning_rate": 5e-5, "epoch": step / 7, "step": step}
            for step in range(self.num_lines)
        )

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The save of the update before has been asked for."""
        self.readings.append(time.process_time())


choices = json.loads(sys.argv[1])
torch.manual_seed(0)
model, rows = build_classes((NUM_SAVES + 2) * BATCH_SIZE)
history = History(choices["size"])
args = TrainingArguments(
    choices["output_dir"],
    max_steps=NUM_SAVES + 2,
    per_device_train_batch_size=BATCH_SIZE,
    logging_strategy="no",
    save_strategy="steps",
    save_steps=1,
    save_total_limit=2,
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
)
Trainer(model=model, args=args, data_collator=stack_rows, train_dataset=rows, callbacks=[history]).train()
# the first save creates what later ones use again
print(json.dumps({"footplate": [end - start for start, end in list(pairwise(history.readings))[1:]]}))
