"""Classify pictures: one folder for each class, or a table of files and labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from footplate import EvalPrediction, HfArg, PredictionOutput, default_data_collator
from footplate.tasks import Batch, Row, require_columns, source_name
from footplate.tasks.common.images import ImageFlags, ImageRecipe, decode_picture, name_of
from footplate.tasks.common.labels import Labels, find_bad_label, find_labels, number_labels
from footplate.tasks.common.scores import measure
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


class ImageClassification(ImageRecipe):
    """Pictures and their classes."""

    summary = "Classify pictures: one folder for each class, or a table of files and labels."
    example = (
        "--model_name_or_path MODEL --train_dir pictures/train --validation_dir pictures/validation "
        "--do_train --do_eval --output_dir out"
    )
    data_flags = ImageClassificationFlags
    head = "AutoModelForImageClassification"
    usual_model = "google/vit-base-patch16-224-in21k"

    labels: Labels
    has_numbers = False  # labels are numbers of classes already

    def read_folder(self, path: str, split: str) -> Any:
        """The pictures of a folder; a trained model needs no classes."""
        rows = super().read_folder(path, split)
        has_classes = hasattr(self, "labels") and "label" in rows.column_names
        return rows.remove_columns("label") if has_classes else rows

    def recall(self, learned: Mapping[str, Any]) -> None:
        """The column of pictures and the classes of an earlier run."""
        super().recall({**learned, "labels": Labels(*learned["labels"])})

    def learn(self, rows: Mapping[str, Any]) -> None:
        """Find the column of pictures and the classes."""
        super().learn(rows)
        self.label = self.data.label_column_name
        for split, part in rows.items():
            if split != "test":
                flag = "--label_column_name, or put the pictures of each class in a folder of its name"
                require_columns(part, [self.label], source_name(self, split), flag)
        self.labels = find_labels(rows, self.label)
        features = next(iter(rows.values())).features or {}
        self.has_numbers = bool(getattr(features.get(self.label), "names", None))

    def find_problem(self, row: Row) -> str | None:
        """A picture that cannot be opened, a class that training does not know."""
        bad = find_bad_label(row[self.label], self.labels, self.has_numbers) if self.label in row else None
        return super().find_problem(row) or bad

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
        """Pixels and classes."""
        made: Batch = {"pixel_values": [to_pixels(image, self.processor) for image in images]}
        if self.label in rows:
            made["labels"] = number_labels(rows[self.label], self.labels, self.has_numbers)
        return made

    def collator(self) -> Any:
        """All pictures have one size already."""
        return default_data_collator

    def metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """The share of pictures whose class is right."""
        return measure(("accuracy",), logits_of(prediction).argmax(axis=1), prediction.label_ids)

    def answers(self, rows: Any, features: Any, output: PredictionOutput) -> list[Row]:
        """The class and its score."""
        scores = logits_of(output)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares = weights / weights.sum(axis=1, keepdims=True)
        return [
            {
                "image": name_of(row[self.image]),
                "label": self.labels.names[int(share.argmax())],
                "score": round(float(share.max()), 4),
            }
            for row, share in zip(rows, shares, strict=True)
        ]


def logits_of(output: Any) -> Any:
    """The scores of classes: a model may give more than these."""
    return output.predictions[0] if isinstance(output.predictions, tuple) else output.predictions
