"""Classify pictures: one folder for each class, or a table of files and labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from footplate import HfArg, PredictionOutput, default_data_collator
from footplate.tasks import Batch, Row
from footplate.tasks.common.classes import ClassRecipe
from footplate.tasks.common.images import ImageFlags, ImageRecipe, decode_picture, name_of
from footplate.tasks.common.transforms import (
    center_crop,
    flip_by_chance,
    random_resized_crop,
    resize,
    size_of,
    to_pixels,
)


@dataclass
class ImageClassificationFlags(ImageFlags):
    """Which column holds the class."""

    label_column_name: str = HfArg(default="label", help="Column of classes.")


class ImageClassification(ClassRecipe, ImageRecipe):
    """Pictures and their classes."""

    summary = "Classify pictures: one folder for each class, or a table of files and labels."
    example = (
        "--model_name_or_path MODEL --train_dir pictures/train --validation_dir pictures/validation "
        "--do_train --do_eval --output_dir out"
    )
    data_flags = ImageClassificationFlags
    head = "AutoModelForImageClassification"
    things = "pictures"
    usual_model = "google/vit-base-patch16-224-in21k"

    def read_folder(self, path: str, split: str) -> Any:
        """The pictures of a folder; a trained model needs no classes."""
        rows = super().read_folder(path, split)
        has_classes = hasattr(self, "labels") and "label" in rows.column_names
        return rows.remove_columns("label") if has_classes else rows

    def configure(self) -> dict[str, Any]:
        """The classes."""
        return {**self.labels.config, "finetuning_task": "image-classification"}

    def transform(self, split: str) -> Any:
        """Random parts to learn from, the middle to evaluate on."""
        return self.random_parts if split == "train" else self.middle_parts

    def random_parts(self, rows: Batch) -> Batch:
        """A random part of each picture, or its mirror image."""
        size = size_of(self.processor)
        images = [random_resized_crop(decode_picture(value), size) for value in rows[self.image]]
        return self.finish([flip_by_chance(image) for image in images], rows)

    def middle_parts(self, rows: Batch) -> Batch:
        """The middle of each picture."""
        size = size_of(self.processor)
        images = [center_crop(resize(decode_picture(value), size), size) for value in rows[self.image]]
        return self.finish(images, rows)

    def finish(self, images: list[Any], rows: Batch) -> Batch:
        """Pixels and the numbers of classes."""
        pixels = [to_pixels(image, self.processor) for image in images]
        return {"pixel_values": pixels, **self.numbers_of(rows)}

    def collator(self) -> Any:
        """All pictures have one size already."""
        return default_data_collator

    def answers(self, rows: Any, features: Any, output: PredictionOutput) -> list[Row]:
        """The class and its score."""
        answers = super().answers(rows, features, output)
        names = [name_of(row[self.image]) for row in rows]
        return [{"image": name, **answer} for name, answer in zip(names, answers, strict=True)]
