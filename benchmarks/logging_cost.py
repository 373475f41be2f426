"""What a log of every update costs: one run that logs as the settings say, timed from first batch to end."""

from __future__ import annotations

import json
import sys
import time

from footplate import Trainer, TrainingArguments

from workloads import Clock, Settings, build_wide

choices = json.loads(sys.argv[1])
settings = Settings(steps=choices["steps"], skip_steps=choices["steps"] // 20, batch_size=32)
model, rows = build_wide(settings.num_rows)
clock = Clock(settings)
args = TrainingArguments(
    output_dir=choices["output_dir"],
    max_steps=settings.steps,
    per_device_train_batch_size=settings.batch_size,
    logging_steps=choices["logging_steps"],
    report=choices["report"],
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
)
trainer = Trainer(model=model, args=args, data_collator=clock, train_dataset=rows)
trainer.train()

(cpu, wall), num_updates = clock.readings[0], settings.steps - settings.skip_steps
result = clock.report()
result["run_cpu"] = [(time.process_time() - cpu) / num_updates]  # the last page included
result["run_wall"] = [(time.perf_counter() - wall) / num_updates]
print(json.dumps(result))
