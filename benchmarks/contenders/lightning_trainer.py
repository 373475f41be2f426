"""Lightning: a module with loss and optimizer, run by its `Trainer` with everything optional turned off."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader

from workloads import Row, Settings, print_result, read_settings


class Module(lightning.LightningModule):
    """The workload's model as Lightning wants it."""

    def __init__(self, model: nn.Module, settings: Settings) -> None:
        super().__init__()
        self.model = model
        self.settings = settings

    def training_step(self, batch: Row, batch_index: int) -> Tensor:
        loss: Tensor = self.model(**batch)["loss"]
        return loss

    def configure_optimizers(self) -> dict[str, Any]:
        settings = self.settings
        optimizer = torch.optim.AdamW(
            self.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        scheduler = LambdaLR(optimizer, lambda step: max(0.0, 1.0 - step / settings.steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
settings, model, rows, clock = read_settings()
model.train()
loader = DataLoader(rows, batch_size=settings.batch_size, shuffle=True, collate_fn=clock)
# the two newest are kept
saver = ModelCheckpoint(
    settings.output_dir, monitor="step", mode="max", save_top_k=2, every_n_train_steps=settings.save_steps
)
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=settings.ranks,
    strategy="ddp" if settings.ranks > 1 else "auto",
    max_epochs=1,
    accumulate_grad_batches=settings.accumulation,
    gradient_clip_val=settings.max_grad_norm,
    default_root_dir=settings.output_dir,
    logger=False,
    callbacks=[saver] if settings.save_steps else [],
    enable_checkpointing=bool(settings.save_steps),
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Module(model, settings), loader)

print_result(clock, model, rows)
