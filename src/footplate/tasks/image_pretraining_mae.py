"""Pretrain a vision transformer as a masked autoencoder (MAE)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from footplate import HfArg, PredictionOutput, TrainingArguments
from footplate.tasks.common.image_pretraining import ImagePretraining
from footplate.tasks.common.images import ImageModelFlags
from footplate.tasks.common.transforms import BICUBIC


@dataclass
class MaeModelFlags(ImageModelFlags):
    """What is hidden, and what the model must find."""

    mask_ratio: float = HfArg(default=0.75, help="Share of the patches of a picture that is hidden.")
    norm_pix_loss: bool = HfArg(default=True, help="Find the pixels of each patch in normalised form.")


@dataclass
class MaeArguments(TrainingArguments):
    """How fast to learn."""

    base_learning_rate: float | None = HfArg(
        default=1e-3, help="Learning rate for 256 pictures in an update; it grows with their number."
    )


class ImagePretrainingMae(ImagePretraining):
    """Pictures of which most patches are hidden; the model finds their pixels."""

    summary = "Pretrain a vision transformer: find the pixels of hidden patches (MAE)."
    example = (
        "--train_dir pictures --config_overrides image_size=64,patch_size=8 --do_train --do_eval "
        "--output_dir out"
    )
    model_flags = MaeModelFlags
    arguments = MaeArguments
    head = "ViTMAEForPreTraining"
    resample = BICUBIC
    label_name = "pixel_values"

    def __init__(self, data: Any, start: Any, args: Any) -> None:
        super().__init__(data, start, args)
        if not (start.model_name_or_path or start.config_name):
            start.model_type = start.model_type or "vit_mae"
        if args.base_learning_rate is not None:
            num_rows = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
            args.learning_rate = args.base_learning_rate * num_rows / 256

    def configure(self) -> dict[str, Any]:
        """What is hidden, and what the model must find."""
        return {"mask_ratio": self.start.mask_ratio, "norm_pix_loss": self.start.norm_pix_loss}

    def fill(self, features: Any, output: PredictionOutput) -> Any:
        """The pixels of each picture, with those of the model in hidden patches."""
        size = self.config.patch_size
        for index, row in enumerate(features):
            found, hidden = (torch.from_numpy(part[index]).float() for part in output.predictions[:2])
            pixels = row["pixel_values"]
            patches = cut_patches(pixels, size)
            if self.config.norm_pix_loss:
                deviation = (patches.var(dim=-1, keepdim=True) + 1e-6).sqrt()
                found = found * deviation + patches.mean(dim=-1, keepdim=True)
            patches = torch.where(hidden[:, None] > 0, found, patches)
            yield join_patches(patches, size, pixels.shape)


def cut_patches(pixels: torch.Tensor, size: int) -> torch.Tensor:
    """One row for each patch of a picture: its pixels, line by line, with the channels last."""
    channels, height, width = pixels.shape
    parts = pixels.reshape(channels, height // size, size, width // size, size)
    return parts.permute(1, 3, 2, 4, 0).reshape(-1, size * size * channels)


def join_patches(patches: torch.Tensor, size: int, shape: Any) -> torch.Tensor:
    """The picture that `cut_patches` made patches of."""
    channels, height, width = shape
    parts = patches.reshape(height // size, width // size, size, size, channels)
    return parts.permute(4, 0, 2, 1, 3).reshape(channels, height, width)
