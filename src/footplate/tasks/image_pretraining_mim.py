"""Pretrain a vision model by masked image modelling (SimMIM)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from footplate import HfArg, PredictionOutput
from footplate.tasks import Batch, TaskError
from footplate.tasks.common.image_pretraining import ImagePretraining
from footplate.tasks.common.images import ImageFlags, ImageModelFlags, ImageRecipe


@dataclass
class MimFlags(ImageFlags):
    """What is hidden."""

    mask_patch_size: int = HfArg(default=32, help="Pixels of a side of a hidden block.")
    mask_ratio: float = HfArg(default=0.6, help="Share of a picture that is hidden.")


@dataclass
class MimModelFlags(ImageModelFlags):
    """Sizes of the model."""

    patch_size: int | None = HfArg(default=None, help="Pixels of a side of a patch (default: the model's).")
    encoder_stride: int | None = HfArg(
        default=None, help="How many pixels one place of the encoder stands for (default: the model's)."
    )


class ImagePretrainingMim(ImagePretraining):
    """Pictures of which random blocks are hidden; the model finds their pixels."""

    summary = "Pretrain a vision model: find the pixels of hidden blocks (SimMIM)."
    example = (
        "--model_type vit --train_dir pictures --image_size 192 --patch_size 16 --encoder_stride 16 "
        "--do_train --do_eval --output_dir out"
    )
    data_flags = MimFlags
    model_flags = MimModelFlags
    head = "AutoModelForMaskedImageModeling"
    old_flags: ClassVar[Mapping[str, str | None]] = {
        **ImageRecipe.old_flags,
        "config_name_or_path": "config_name",
    }
    scale = (0.67, 1.0)
    label_name = "bool_masked_pos"

    def configure(self) -> dict[str, Any]:
        """Sizes that flags give."""
        sizes = {name: getattr(self.start, name) for name in ("image_size", "patch_size", "encoder_stride")}
        return {name: value for name, value in sizes.items() if value is not None}

    def adjust(self, model: Any) -> Any:
        """The model; its pictures must divide into blocks, and these into patches."""
        block, config = self.data.mask_patch_size, self.config
        if config.image_size % block or block % config.patch_size:
            raise TaskError(
                f"--mask_patch_size {block}: pictures of {config.image_size} pixels must divide into blocks "
                f"of this size, and these into patches of {config.patch_size}."
            )
        return model

    def processor_options(self) -> dict[str, Any]:
        """Pictures have the size that the model takes."""
        return {"size": {"height": self.config.image_size, "width": self.config.image_size}}

    def hide(self, made: Batch) -> Batch:
        """Which patches of each picture are hidden: random blocks of them."""
        block, config = self.data.mask_patch_size, self.config
        num_blocks, num_patches = config.image_size // block, block // config.patch_size
        masks = [pick_blocks(num_blocks, num_patches, self.data.mask_ratio) for _ in made["pixel_values"]]
        return {**made, "bool_masked_pos": masks}

    def fill(self, features: Any, output: PredictionOutput) -> Any:
        """The pixels of each picture, with those of the model in hidden blocks."""
        predictions = output.predictions
        found = torch.from_numpy(predictions[0] if isinstance(predictions, tuple) else predictions)
        assert output.label_ids is not None
        size = self.config.patch_size
        for pixels, row, mask in zip(found, features, np.asarray(output.label_ids), strict=True):
            side = math.isqrt(mask.size)
            hidden = torch.from_numpy(mask.reshape(side, side)).repeat_interleave(size, 0)
            hidden = hidden.repeat_interleave(size, 1).bool()
            yield torch.where(hidden, pixels.float(), row["pixel_values"])


def pick_blocks(num_blocks: int, num_patches: int, ratio: float) -> torch.Tensor:
    """1 for each patch that is hidden, line by line.

    Args:
        num_blocks: Blocks of a side of the picture.
        num_patches: Patches of a side of a block.
        ratio: The share of blocks that are hidden.
    """
    count = math.ceil(num_blocks**2 * ratio)
    chosen = np.random.permutation(num_blocks**2)[:count]  # numpy's state is part of the run, as torch's is
    mask = np.zeros(num_blocks**2, dtype=int)
    mask[chosen] = 1
    mask = mask.reshape(num_blocks, num_blocks).repeat(num_patches, axis=0).repeat(num_patches, axis=1)
    return torch.tensor(mask.flatten())
