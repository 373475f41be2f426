"""A model moved from Lightning, as docs/moving.md says: the same weights, to the last bit.

Lightning is installed by the extra `clients`; `make test-slow` sees to that.
"""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

import tiny
from footplate import Trainer, set_seed

pytestmark = pytest.mark.slow  # importing Lightning takes seconds

EPOCHS, BATCH_SIZE, LEARNING_RATE, ACCUMULATION, CLIPPING = 3, 16, 1e-2, 2, 0.5


def build_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))


def train_before(rows: list[dict[str, torch.Tensor]]) -> nn.Module:
    """The model, trained by Lightning."""
    import lightning

    class Classifier(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = build_layers()

        def training_step(self, batch, batch_idx):
            return nn.functional.cross_entropy(self.layers(batch["x"]), batch["labels"])

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=LEARNING_RATE, weight_decay=0.0, fused=True)

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    model = Classifier()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accumulate_grad_batches=ACCUMULATION,
        gradient_clip_val=CLIPPING,
        accelerator="cpu",
        enable_model_summary=False,
        **quiet,
    )
    trainer.fit(model, torch.utils.data.DataLoader(rows, batch_size=BATCH_SIZE))
    return model


def train_after(rows: list[dict[str, torch.Tensor]], folder: str) -> nn.Module:
    """The same by footplate."""

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = build_layers()

        def forward(self, x, labels=None):
            logits = self.layers(x)
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    model = Classifier()
    args = tiny.arguments(
        folder,
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=BATCH_SIZE,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        gradient_accumulation_steps=ACCUMULATION,
        max_grad_norm=CLIPPING,
        train_sampling_strategy="sequential",
        seed=1,
    )
    Trainer(model, args, train_dataset=rows).train()
    return model


def test_a_model_moved_from_lightning_learns_the_same_to_the_last_bit(tmp_path):
    points = torch.randn(320, 2, generator=torch.Generator().manual_seed(0))
    rows = [{"x": x, "labels": (x.sum() > 0).long()} for x in points]
    trained = []
    for train in (train_before, lambda rows: train_after(rows, str(tmp_path))):
        set_seed(1)
        trained.append([parameter.detach().clone() for parameter in train(rows).parameters()])
    set_seed(1)
    assert not torch.equal(trained[0][0], next(build_layers().parameters()))
    for before, after in zip(*trained, strict=True):
        assert torch.equal(before, after)
