"""Accelerate: the hand-written loop, its parts prepared by an `Accelerator`."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader

from workloads import print_result, read_settings

settings, model, rows, clock = read_settings()
project = ProjectConfiguration(settings.output_dir, automatic_checkpoint_naming=True, total_limit=2)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=settings.accumulation, project_config=project)
save_every = settings.save_steps * settings.accumulation  # in micro-batches
model.train()
loader = DataLoader(rows, batch_size=settings.batch_size, shuffle=True, collate_fn=clock)
optimizer = torch.optim.AdamW(
    model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
)
# a prepared scheduler takes one step per process
num_steps = settings.steps * accelerator.num_processes
scheduler = LambdaLR(optimizer, lambda step: max(0.0, 1.0 - step / num_steps))
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

for index, batch in enumerate(loader, start=1):
    with accelerator.accumulate(model):
        loss = model(**batch)["loss"]
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    if save_every and index % save_every == 0:
        accelerator.save_state()

print_result(clock, model, rows)
