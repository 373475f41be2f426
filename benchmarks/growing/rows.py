"""One evaluation of so many rows, by the expert and by footplate in turn: CPU seconds per row."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
from footplate import Trainer, TrainingArguments

from beside import expert
from workloads import build_classes, stack_rows

BATCH_SIZE = 8


def compute_metrics(prediction: Any) -> dict[str, float]:
    """The accuracy, so that predictions are kept."""
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


choices = json.loads(sys.argv[1])
torch.manual_seed(0)
model, rows = build_classes(choices["size"])
args = TrainingArguments(
    choices["output_dir"],
    per_device_eval_batch_size=BATCH_SIZE,
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
)
trainer = Trainer(model=model, args=args, data_collator=stack_rows, compute_metrics=compute_metrics)
_, warm_up = build_classes(256)
times: dict[str, list[float]] = {"expert": [], "footplate": []}
for turn in range(-1, choices["turns"]):
    evaluated = warm_up if turn < 0 else rows
    for name, seconds in times.items():
        began = time.process_time()
        if name == "expert":
            predictions, labels, _ = expert.evaluate(model, evaluated, stack_rows, BATCH_SIZE)
            accuracy = float((predictions.argmax(-1) == labels).mean())
        else:
            assert trainer.evaluate(evaluated)["eval_accuracy"] == accuracy, "both must do the same work"
        if turn >= 0:
            seconds.append((time.process_time() - began) / len(evaluated))
print(json.dumps(times))
