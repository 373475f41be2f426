"""What the tasks share that hide parts of pictures and let a model fill them in."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from footplate import PredictionOutput, default_data_collator
from footplate.tasks.common.images import ImageRecipe, decode_picture, name_of
from footplate.tasks.common.recipe import Batch, Row
from footplate.tasks.common.transforms import (
    BILINEAR,
    center_crop,
    flip_by_chance,
    import_pillow,
    random_resized_crop,
    resize,
    size_of,
    to_pixels,
)


class ImagePretraining(ImageRecipe):
    """Pictures without labels: random parts of them, of which the model sees a share."""

    usual_dataset = "cifar10"
    scale: ClassVar[tuple[float, float]] = (0.2, 1.0)  # the share of a picture that a random part has
    resample: ClassVar[int] = BILINEAR
    label_name: ClassVar[str]  # the input that stands for labels, so that evaluations have a loss

    def __init__(self, data: Any, start: Any, args: Any) -> None:
        super().__init__(data, start, args)
        args.label_names = args.label_names or [self.label_name]

    def transform(self, split: str) -> Any:
        """Random parts, to evaluate on too; the middle of pictures whose answers people look at."""
        return self.middle_parts if split == "test" else self.random_parts

    def random_parts(self, rows: Batch) -> Batch:
        """A random part of each picture, or its mirror image."""
        size, pixels = size_of(self.processor), []
        for value in rows[self.image]:
            image = random_resized_crop(decode_picture(value), size, scale=self.scale, resample=self.resample)
            pixels.append(to_pixels(flip_by_chance(image), self.processor))
        return self.hide({"pixel_values": pixels})

    def middle_parts(self, rows: Batch) -> Batch:
        """The middle of each picture."""
        size = size_of(self.processor)
        images = [center_crop(resize(decode_picture(value), size), size) for value in rows[self.image]]
        return self.hide({"pixel_values": [to_pixels(image, self.processor) for image in images]})

    def hide(self, made: Batch) -> Batch:
        """Add what the model must know of hidden parts."""
        return made

    def collator(self) -> Any:
        """All pictures have one size already."""
        return default_data_collator

    def show(self, inputs: Any, labels: Any, predictions: Any) -> Row:
        """The size of a picture: what the model fills in is measured by the loss."""
        return {"input": " x ".join(map(str, inputs["pixel_values"].shape))}

    def answers(self, rows: Any, features: Any, output: PredictionOutput) -> list[Row]:
        """A picture in which the model has filled in the hidden parts."""
        folder, answers = Path(self.args.output_dir) / "predictions", []
        for index, (row, pixels) in enumerate(zip(rows, self.fill(features, output), strict=True)):
            name = name_of(row[self.image])
            path = folder / f"{index:05}_{Path(name).stem}.png"
            save_pixels(pixels, self.processor, path)
            answers.append({"image": name, "filled": str(path)})
        return answers

    def fill(self, features: Any, output: PredictionOutput) -> Any:
        """The pixels of each picture, with those of the model where they were hidden."""
        raise NotImplementedError


def save_pixels(pixels: torch.Tensor, processor: Any, path: Path) -> None:
    """Write normalised pixels as a picture."""
    mean, std = (
        torch.tensor(values).view(-1, 1, 1) for values in (processor.image_mean, processor.image_std)
    )
    values = ((pixels * std + mean).clamp(0, 1) * 255).round().permute(1, 2, 0).numpy().astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    import_pillow().fromarray(values).save(path)
