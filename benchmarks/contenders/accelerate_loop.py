"""Accelerate: the hand-written loop, its parts prepared by an `Accelerator`."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader

from workloads import print_result, read_settings

settings, model, rows, clock = read_settings()
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=settings.accumulation)
model.train()
loader = DataLoader(rows, batch_size=settings.batch_size, shuffle=True, collate_fn=clock)
optimizer = torch.optim.AdamW(
    model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
)
scheduler = LambdaLR(optimizer, lambda step: max(0.0, 1.0 - step / settings.steps))
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

for batch in loader:
    with accelerator.accumulate(model):
        loss = model(**batch)["loss"]
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()

print_result(clock, model, rows)
