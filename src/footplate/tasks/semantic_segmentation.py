"""Find the class of each pixel of pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from footplate import EvalPrediction, HfArg, PredictionOutput, default_data_collator
from footplate.tasks import Batch, Row, check_columns
from footplate.tasks.common import images, masks
from footplate.tasks.common.images import ImageFlags, ImageRecipe
from footplate.tasks.common.labels import name_classes
from footplate.tasks.common.reading import FORMS
from footplate.tasks.common.transforms import as_pair, size_of, to_pixels


@dataclass
class SegmentationFlags(ImageFlags):
    """Where masks are, and what their numbers mean."""

    label_column_name: str | None = HfArg(default=None, help="Column of masks (default: label, annotation).")
    do_reduce_labels: bool = HfArg(
        default=False, help="Pixels of class 0 have no class; the others are numbered from 0."
    )
    ignore_index: int | None = HfArg(
        default=None, help="Class that is not measured (default: 0 for datasets of the Hub, else none)."
    )


class SemanticSegmentation(ImageRecipe):
    """Pictures and masks, whose pixels are numbers of classes."""

    summary = "Find the class of each pixel of pictures, from folders images/ and masks/."
    example = (
        "--model_name_or_path MODEL --train_dir data/train --validation_dir data/validation "
        "--do_train --do_eval --output_dir out"
    )
    data_flags = SegmentationFlags
    head = "AutoModelForSemanticSegmentation"
    usual_dataset, usual_model = "segments/sidewalk-semantic", "nvidia/mit-b0"
    old_flags: ClassVar[Mapping[str, str | None]] = {
        **ImageRecipe.old_flags,
        "reduce_labels": "do_reduce_labels",
    }

    mask: str  # column of masks
    names: list[str]

    def read_folder(self, path: str, split: str) -> Any:
        """Pairs of pictures and masks."""
        return masks.read_pairs(path, split)

    def read_file(self, path: str, split: str) -> Any:
        """A folder, or a table with a column of pictures and one of masks."""
        rows = super().read_file(path, split)
        column = masks.find_column(rows, self.data.label_column_name)
        is_table = column is not None and Path(path).suffix.lower() in FORMS
        return images.link_pictures(rows, column, self.picture_folder(path)) if is_table else rows

    def read_hub(self) -> dict[str, Any]:
        """All splits of a dataset of the Hub; masks are decoded later."""
        found, given = super().read_hub(), self.data.label_column_name
        columns = {split: masks.find_column(part, given) for split, part in found.items()}
        return {split: images.keep_encoded(part, columns[split]) for split, part in found.items()}

    def learn(self, rows: Mapping[str, Any]) -> None:
        """Find the columns and the classes."""
        super().learn(rows)
        first = rows["train"] if "train" in rows else next(iter(rows.values()))
        self.mask = masks.find_column(first, self.data.label_column_name) or "label"
        check_columns(self, rows, [], [self.mask], "--label_column_name")
        skipped = int(self.data.do_reduce_labels)
        names = masks.find_names(self.files().values())
        names = names or masks.find_hub_names(self.data.dataset_name, self.start)
        self.names = names or masks.name_numbers(first[self.mask], skipped)
        self.num_values = len(self.names) + skipped

    def find_problem(self, row: Row) -> str | None:
        """A picture that cannot be opened, a mask of another size or with unknown classes."""
        problem = super().find_problem(row)
        if problem is not None or self.mask not in row:
            return problem
        return masks.find_unfit_mask(row[self.image], row[self.mask], self.num_values)

    def configure(self) -> dict[str, Any]:
        """The classes."""
        return name_classes(self.names)

    def processor_options(self) -> dict[str, Any]:
        """What class 0 means."""
        return {"do_reduce_labels": self.data.do_reduce_labels}

    def transform(self, split: str) -> Any:
        """Random parts to learn from, whole pictures to evaluate on."""
        return partial(self.finish, change=masks.random_part if split == "train" else masks.whole_picture)

    def finish(self, rows: Batch, change: Any) -> Batch:
        """Pixels and their classes."""
        made: Batch = {"pixel_values": [], "labels": []}
        size, reduces = as_pair(size_of(self.processor)), self.data.do_reduce_labels
        for index, value in enumerate(rows[self.image]):
            mask = masks.mask_picture(rows[self.mask][index], reduces) if self.mask in rows else None
            image, mask = change(images.decode_picture(value), mask, size)
            made["pixel_values"].append(to_pixels(image, self.processor))
            made["labels"].append(None if mask is None else torch.from_numpy(np.array(mask)).long())
        return made if self.mask in rows else {"pixel_values": made["pixel_values"]}

    def collator(self) -> Any:
        """All pictures have one size already."""
        return default_data_collator

    def trainer_options(self, rows: Mapping[str, Any], features: Mapping[str, Any]) -> dict[str, Any]:
        """Keep classes of pixels instead of all scores, which take much more memory."""
        return {"preprocess_logits_for_metrics": self.decide}

    def decide(self, scores: Any, labels: Any) -> Any:
        """The classes of pixels, in the size of the pictures."""
        scores, size = scores[0] if isinstance(scores, tuple) else scores, as_pair(size_of(self.processor))
        scores = torch.nn.functional.interpolate(scores, size=size, mode="bilinear", align_corners=False)
        return scores.argmax(dim=1).to(torch.int16)

    def metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """Overlap over union and accuracy, in the mean and for each class."""
        ignored = self.data.ignore_index
        if ignored is None and self.data.dataset_name is not None:
            ignored = 0
        return masks.measure_masks(prediction.predictions, prediction.label_ids, self.names, ignored)

    def show(self, inputs: Any, labels: Any, predictions: Any) -> Row:
        """The classes and the share of pixels that are right."""
        scores = predictions[0] if isinstance(predictions, (tuple, list)) else predictions
        found = self.decide(scores[None].float(), None)[0].cpu().numpy()
        return masks.compare_masks(found, None if labels is None else labels.cpu().numpy(), self.names)

    def answers(self, rows: Any, features: Any, output: PredictionOutput) -> list[Row]:
        """A picture of the mask, and the share of each class in it."""
        answers: list[Row] = []
        for index, (row, classes) in enumerate(zip(rows, output.predictions, strict=True)):
            name, size = images.name_of(row[self.image]), images.decode_picture(row[self.image]).size
            path = masks.save_mask(classes, size, self.args.output_dir, index, name)
            shares = masks.share_classes(classes, self.names)
            answers.append({"image": name, "mask": path, "shares": shares})
        return answers
