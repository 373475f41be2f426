"""Find objects in pictures: boxes and classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from footplate import EvalPrediction, HfArg, PredictionOutput
from footplate.tasks import Batch, Row, require_columns, source_name
from footplate.tasks.common.coco import (
    change_boxes,
    clip_boxes,
    find_annotations,
    find_bad_box,
    find_class_names,
    is_coco,
    read_coco,
    size_of_picture,
)
from footplate.tasks.common.detection_scores import DetectionScores, Objects
from footplate.tasks.common.images import PICTURES, ImageFlags, ImageRecipe, decode_picture, name_of
from footplate.tasks.common.labels import name_classes


@dataclass
class DetectionFlags(ImageFlags):
    """Size of pictures."""

    image_dir: str | None = HfArg(
        default=None, help="Folder of the pictures that a file names (default: its own)."
    )
    image_square_size: int = HfArg(default=600, help="Pictures are resized to fit in a square of this size.")
    score_threshold: float = HfArg(default=0.5, help="Objects with lower scores are no answers.")


class ObjectDetection(ImageRecipe):
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
    seeds_split = True
    names: list[str]
    objects = "objects"  # column of boxes and classes

    def __init__(self, data: Any, start: Any, args: Any) -> None:
        super().__init__(data, start, args)
        args.eval_do_concat_batches = False  # pictures differ in the number of their objects

    def read_file(self, path: str, split: str) -> Any:
        """A file in the form of COCO, a folder that holds one, or a table of pictures and objects."""
        if Path(path).suffix.lower() in PICTURES:
            return super().read_file(path, split)
        file = find_annotations(path, split)
        if file is None:  # pictures to find objects in
            return super().read_file(path, split)
        if file.is_file() and is_coco(file):
            return read_coco(file, split, self.picture_folder(str(file)))
        return super().read_file(str(file), split)

    def picture_folder(self, path: str) -> str:
        """Where pictures are that a file names."""
        return self.data.image_dir or super().picture_folder(path)

    def more_splits(self) -> tuple[str, ...]:
        """The test set of a dataset of the Hub, which the last evaluation is made on."""
        return ("test",) if self.data.dataset_name else ()

    def learn(self, rows: Mapping[str, Any]) -> None:
        """Find the column of pictures and the classes."""
        super().learn(rows)
        for split, part in rows.items():
            if split != "test":
                require_columns(part, [self.objects], source_name(self, split), "a column objects")
        self.names = find_class_names(rows.get("train", next(iter(rows.values()))), self.objects)

    def find_problem(self, row: Row) -> str | None:
        """A picture that cannot be opened, a box outside of it, a class that training does not know."""
        problem = super().find_problem(row)
        if problem is not None or self.objects not in row:
            return problem
        return find_bad_box(row[self.objects], size_of_picture(row[self.image]), self.names)

    def configure(self) -> dict[str, Any]:
        """The classes."""
        return name_classes(self.names)

    def processor_options(self) -> dict[str, Any]:
        """Pictures fit in a square and are filled up to it."""
        side = self.data.image_square_size
        return {
            "do_resize": True,
            "size": {"max_height": side, "max_width": side},
            "do_pad": True,
            "pad_size": {"height": side, "width": side},
        }

    def transform(self, split: str) -> Any:
        """Changed by chance to learn from, as they are to evaluate on."""
        return self.changed_pictures if split == "train" else self.whole_pictures

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
            annotations.append(self.annotate(number, boxes, objects["category"]))
        made = self.processor(images=images, annotations=annotations, return_tensors="pt")
        labels = {"labels": made["labels"]} if self.objects in rows else {}
        return {"pixel_values": list(made["pixel_values"]), **labels}

    def annotate(self, number: int, boxes: Any, classes: list[Any]) -> dict[str, Any]:
        """The objects of a picture as the processor takes them."""
        places = {name: place for place, name in enumerate(self.names)}
        entries = [
            {
                "image_id": number,
                "category_id": places[name] if isinstance(name, str) else name,
                "bbox": box.tolist(),
                "area": float(box[2] * box[3]),
                "iscrowd": 0,
            }
            for box, name in zip(boxes, classes, strict=True)
        ]
        return {"image_id": number, "annotations": entries}

    def collator(self) -> Any:
        """Pictures in one tensor, objects as a list."""
        return collate

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
        return [
            {
                "label": self.names[int(label)],
                "score": round(float(score), 4),
                "box": [round(float(value), 1) for value in box],
            }
            for label, score, box in zip(found["labels"], found["scores"], found["boxes"], strict=True)
        ]


def collate(rows: list[Any]) -> dict[str, Any]:
    """The batch of some pictures."""
    batch: dict[str, Any] = {"pixel_values": torch.stack([row["pixel_values"] for row in rows])}
    if "labels" in rows[0]:
        batch["labels"] = [dict(row["labels"]) for row in rows]
    return batch


def keep_boxes(outputs: Any, labels: Any) -> Any:
    """Scores of classes and boxes among all that the model gives; parts of the loss come first."""
    return tuple(part for part in outputs if isinstance(part, torch.Tensor))[:2]


def corners_of(boxes: Any, size: tuple[int, int]) -> Any:
    """Boxes given as middle and sides in shares of a height and width, as corners in pixels."""
    boxes = boxes.reshape(-1, 4)
    height, width = size
    corners = np.hstack([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2])
    return corners * [width, height, width, height]
