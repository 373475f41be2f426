"""Find objects in pictures: boxes and classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from footplate import EvalPrediction, HfArg, PredictionOutput
from footplate.tasks import Batch, Row
from footplate.tasks.common.coco import annotate, change_boxes, clip_boxes, corners_of, size_of_picture
from footplate.tasks.common.detection_scores import DetectionScores, Objects
from footplate.tasks.common.images import decode_picture, name_of
from footplate.tasks.common.objects import ObjectFlags, ObjectRecipe, first_tensors


@dataclass
class DetectionFlags(ObjectFlags):
    """Size of pictures."""

    image_square_size: int = HfArg(default=600, help="Pictures are resized to fit in a square of this size.")


class ObjectDetection(ObjectRecipe):
    """Pictures and the boxes of objects, in the form of COCO."""

    summary = "Find objects in pictures: boxes and classes, from files in the form of COCO."
    example = (
        "--model_name_or_path MODEL --train_file train.json --validation_file validation.json "
        "--image_dir pictures --do_train --do_eval --output_dir out"
    )
    data_flags = DetectionFlags
    first_flags = ("train_dir", "image_square_size")
    head = "AutoModelForObjectDetection"
    usual_dataset, usual_model = "cppe-5", "facebook/detr-resnet-50"

    def more_splits(self) -> tuple[str, ...]:
        """The test set of a dataset of the Hub, which the last evaluation is made on."""
        return ("test",) if self.data.dataset_name else ()

    def processor_options(self) -> dict[str, Any]:
        """Pictures fit in a square and are filled up to it."""
        side = self.data.image_square_size
        return {
            "do_resize": True,
            "size": {"max_height": side, "max_width": side},
            "do_pad": True,
            "pad_size": {"height": side, "width": side},
        }

    def changed_pictures(self, rows: Batch) -> Batch:
        """Each picture, perhaps mirrored, cut or in another light."""
        return self.finish(rows, change_boxes)

    def whole_pictures(self, rows: Batch) -> Batch:
        """Each picture as it is."""
        return self.finish(rows, lambda image, boxes: (image, boxes))

    def finish(self, rows: Batch, change: Any) -> Batch:
        """Pixels and, as the processor makes them, boxes and classes."""
        images, annotations = [], []
        for index, value in enumerate(rows[self.image]):
            image = decode_picture(value)
            objects = rows[self.objects][index] if self.objects in rows else {"bbox": [], "category": []}
            image, boxes = change(image, clip_boxes(objects["bbox"], image.size))
            images.append(np.asarray(image))
            number = rows["image_id"][index] if "image_id" in rows else index
            annotations.append(annotate(number, boxes, objects["category"], self.names))
        made = self.processor(images=images, annotations=annotations, return_tensors="pt")
        labels = {"labels": [dict(entry) for entry in made["labels"]]} if self.objects in rows else {}
        return {"pixel_values": list(made["pixel_values"]), **labels}

    def trainer_options(self, rows: Mapping[str, Any], features: Mapping[str, Any]) -> dict[str, Any]:
        """Keep scores of classes and boxes alone."""
        return {"preprocess_logits_for_metrics": keep_boxes}

    def metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """Mean average precision and recall, also for each class."""
        scores = DetectionScores()
        predictions: Any = prediction.predictions
        labels: Any = prediction.label_ids
        for batch, targets in zip(predictions, labels, strict=True):
            sizes = [tuple(np.asarray(target["orig_size"]).tolist()) for target in targets]
            for found, target, size in zip(self.find_objects(batch, sizes), targets, sizes, strict=True):
                boxes = corners_of(np.asarray(target["boxes"]), size)
                wanted = Objects(np.asarray(target["class_labels"]), boxes)
                scores.add(Objects(found["labels"], found["boxes"], found["scores"]), wanted)
        return scores.results(self.names)

    def evaluation_sets(self, rows: Mapping[str, Any]) -> dict[str, str]:
        """The test set of a dataset of the Hub, as in the original's script; else the validation set."""
        return {"test" if self.data.dataset_name and "test" in rows else "validation": ""}

    def evaluation_prefix(self, rows: Mapping[str, Any]) -> str:
        """Metrics of a test set are called test_..."""
        return "test" if "test" in self.evaluation_sets(rows) else "eval"

    def find_objects(self, batch: Any, sizes: Any, threshold: float = 0.0) -> list[dict[str, Any]]:
        """Scores, classes and boxes of each picture of a batch."""
        from transformers.utils import ModelOutput

        logits, boxes = (torch.as_tensor(part).float() for part in batch)
        output = ModelOutput(logits=logits, pred_boxes=boxes)
        found = self.processor.post_process_object_detection(output, threshold, target_sizes=sizes)
        return [{name: value.numpy() for name, value in part.items()} for part in found]

    def answers(self, rows: Any, features: Any, output: PredictionOutput) -> list[Row]:
        """The objects with class, score and box: left, top, right and bottom in pixels."""
        sizes = [size_of_picture(value) for value in rows[self.image]]
        answers: list[Row] = []
        for batch in output.predictions:
            part = sizes[len(answers) : len(answers) + len(batch[0])]
            # boxes are shares of the square, which is filled up with black: as large as the longer side
            squares = [(max(size), max(size)) for size in part]
            for found in self.find_objects(batch, squares, self.data.score_threshold):
                value = rows[len(answers)][self.image]
                answers.append({"image": name_of(value), "objects": self.describe(found)})
        return answers

    def describe(self, found: Mapping[str, Any]) -> list[Row]:
        """The objects of a picture in words."""
        entries = zip(found["labels"], found["scores"], found["boxes"], strict=True)
        objects = [
            {
                "label": self.names[int(label)],
                "score": round(float(score), 4),
                "box": [round(float(value), 1) for value in box],
            }
            for label, score, box in entries
        ]
        return sorted(objects, key=lambda entry: -entry["score"])


def keep_boxes(outputs: Any, labels: Any) -> Any:
    """Scores of classes and boxes among all that the model gives; parts of the loss come first."""
    return first_tensors(outputs)
