"""The yardstick of several processes: the loop that someone who knows DDP writes by hand."""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, DistributedSampler

from workloads import print_result, read_settings

settings, model, rows, clock = read_settings()
torch.distributed.init_process_group("gloo")
device = torch.device("cpu")
model.to(device).train()
parameters = list(model.parameters())
parallel = DistributedDataParallel(
    model, gradient_as_bucket_view=True, find_unused_parameters=bool(settings.finds_unused)
)
sampler = DistributedSampler(rows, shuffle=True, seed=0)
loader = DataLoader(rows, batch_size=settings.batch_size, sampler=sampler, collate_fn=clock)
optimizer = torch.optim.AdamW(
    parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
)
scheduler = LambdaLR(optimizer, lambda step: max(0.0, 1.0 - step / settings.steps))

for batch in loader:
    batch = {name: column.to(device) for name, column in batch.items()}
    loss = parallel(**batch)["loss"]
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, settings.max_grad_norm, foreach=True)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad(set_to_none=True)

print_result(clock, model, rows)
torch.distributed.destroy_process_group()
