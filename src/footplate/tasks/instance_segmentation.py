"""Find objects in pictures: classes and masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from footplate import EvalPrediction, HfArg, PredictionOutput
from footplate.tasks import Batch, Row
from footplate.tasks.common import instances
from footplate.tasks.common.coco import size_of_picture
from footplate.tasks.common.detection_scores import DetectionScores, Objects
from footplate.tasks.common.images import (
    IMAGE_COLUMNS,
    decode_picture,
    find_broken_picture,
    keep_encoded,
    name_of,
)
from footplate.tasks.common.masks import save_mask
from footplate.tasks.common.objects import ObjectFlags, ObjectRecipe, first_tensors
from footplate.tasks.common.transforms import resize, to_pixels

MAP = "annotation"  # column of pictures whose channels are class and object


@dataclass
class InstanceFlags(ObjectFlags):
    """Size of pictures, and what class 0 means."""

    image_height: int = HfArg(default=512, help="Height of pictures.")
    image_width: int = HfArg(default=512, help="Width of pictures.")
    do_reduce_labels: bool = HfArg(default=False, help="Class 0 of a map is no object.")


class InstanceSegmentation(ObjectRecipe):
    """Pictures and the masks of objects, in the form of COCO."""

    summary = "Find objects in pictures: classes and masks, from files in the form of COCO."
    example = (
        "--model_name_or_path MODEL --train_file train.json --validation_file validation.json "
        "--image_dir pictures --do_train --do_eval --output_dir out"
    )
    data_flags = InstanceFlags
    head = "AutoModelForUniversalSegmentation"
    usual_dataset, usual_model = "qubvel-hf/ade20k-mini", "facebook/mask2former-swin-tiny-coco-instance"
    has_maps = False

    def read_hub(self) -> dict[str, Any]:
        """All splits of a dataset of the Hub; maps are decoded later."""
        found = super().read_hub()
        return {
            split: keep_encoded(part, MAP) if MAP in part.column_names else part
            for split, part in found.items()
        }

    def learn(self, rows: Mapping[str, Any]) -> None:
        """Find the columns and the classes."""
        first = rows.get("train", next(iter(rows.values())))
        self.has_maps = MAP in first.column_names
        if not self.has_maps:
            super().learn(rows)
            return
        self.image = next(name for name in IMAGE_COLUMNS if name in first.column_names)
        self.names = instances.names_in_map(first[0], self.data.do_reduce_labels)

    def find_problem(self, row: Row) -> str | None:
        """A picture that cannot be opened, an object whose mask cannot be read."""
        if self.has_maps:
            return find_broken_picture(row[self.image]) or find_broken_picture(row.get(MAP))
        problem = super().find_problem(row)
        if problem is not None or self.objects not in row:
            return problem
        return instances.find_bad_mask(row[self.objects], size_of_picture(row[self.image]), self.names)

    def processor_options(self) -> dict[str, Any]:
        """The size of pictures."""
        size = {"height": self.data.image_height, "width": self.data.image_width}
        return {"do_resize": True, "size": size, "do_reduce_labels": self.data.do_reduce_labels}

    def objects_of(self, rows: Batch, index: int, size: tuple[int, int]) -> tuple[list[int], Any]:
        """Classes and masks of a picture."""
        if self.has_maps:
            return instances.read_map(rows[MAP][index], self.data.do_reduce_labels)
        return instances.read_objects(rows[self.objects][index], size, self.names)

    def changed_pictures(self, rows: Batch) -> Batch:
        """Each picture, perhaps mirrored or in another light."""
        return self.finish(rows, instances.change_masks)

    def whole_pictures(self, rows: Batch) -> Batch:
        """Each picture as it is."""
        return self.finish(rows, lambda image, masks: (image, masks))

    def finish(self, rows: Batch, change: Any) -> Batch:
        """Pixels, masks and classes."""
        made: Batch = {"pixel_values": [], "mask_labels": [], "class_labels": []}
        has_objects = (MAP if self.has_maps else self.objects) in rows
        size = (self.data.image_height, self.data.image_width)
        for index, value in enumerate(rows[self.image]):
            image = decode_picture(value)
            none: tuple[list[int], Any] = ([], np.zeros((0, image.height, image.width), dtype=bool))
            classes, masks = self.objects_of(rows, index, image.size) if has_objects else none
            image, masks = change(image, masks)
            made["pixel_values"].append(to_pixels(resize(image, size), self.processor))
            made["mask_labels"].append(torch.from_numpy(instances.resize_masks(masks, size)).float())
            made["class_labels"].append(torch.tensor(classes, dtype=torch.long))
        return made if has_objects else {"pixel_values": made["pixel_values"]}

    def trainer_options(self, rows: Mapping[str, Any], features: Mapping[str, Any]) -> dict[str, Any]:
        """Keep scores of classes and pixels alone, with fewer digits."""
        return {"preprocess_logits_for_metrics": keep_masks}

    def metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """Mean average precision and recall of masks, also for each class."""
        scores, size = DetectionScores(), (self.data.image_height, self.data.image_width)
        predictions: Any = prediction.predictions
        labels: Any = prediction.label_ids
        for (logits, pixels), (masks, classes) in zip(predictions, labels, strict=True):
            for index, wanted in enumerate(masks):
                found = instances.find_instances(logits[index], pixels[index], size)
                scores.add(found, Objects(np.asarray(classes[index]), np.asarray(wanted) > 0))
        return scores.results(self.names)

    def evaluation_prefix(self, rows: Mapping[str, Any]) -> str:
        """The original's script names the last metrics of a dataset of the Hub test_..."""
        return "test" if self.data.dataset_name else "eval"

    def answers(self, rows: Any, features: Any, output: PredictionOutput) -> list[Row]:
        """The objects with class and score, and a picture whose pixels are their numbers from 1 on."""
        predictions: Any = output.predictions
        pairs = [pair for batch in predictions for pair in zip(*batch, strict=True)]
        answers: list[Row] = []
        for index, (value, (logits, pixels)) in enumerate(zip(rows[self.image], pairs, strict=True)):
            size, name = size_of_picture(value), name_of(value)
            found = instances.find_instances(logits, pixels, (size[1], size[0]), self.data.score_threshold)
            path = save_mask(instances.number_pixels(found, size), size, self.args.output_dir, index, name)
            objects = instances.describe_instances(found, self.names)
            answers.append({"image": name, "mask": path, "objects": objects})
        return answers


def keep_masks(outputs: Any, labels: Any) -> Any:
    """Scores of classes and pixels among all that the model gives."""
    logits, masks = first_tensors(outputs)
    return logits, masks.half()
