"""Find the class of each pixel of pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from footplate import EvalPrediction, HfArg, PredictionOutput, default_data_collator
from footplate.tasks import Batch, Row, require_columns, source_name
from footplate.tasks.common.images import (
    ImageFlags,
    ImageRecipe,
    decode_picture,
    find_hub_file,
    keep_encoded,
    link_pictures,
    name_of,
)
from footplate.tasks.common.labels import name_classes
from footplate.tasks.common.masks import (
    IGNORED,
    NAMES_FILE,
    find_names,
    find_unfit_mask,
    mask_picture,
    measure_masks,
    name_numbers,
    random_part,
    read_pairs,
    save_mask,
    share_classes,
    whole_picture,
)
from footplate.tasks.common.reading import FORMS
from footplate.tasks.common.transforms import as_pair, size_of, to_pixels

MASK_COLUMNS = ("label", "annotation", "mask", "labels")


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
        return read_pairs(path, split)

    def read_file(self, path: str, split: str) -> Any:
        """A folder, or a table with a column of pictures and one of masks."""
        rows = super().read_file(path, split)
        column = self.find_mask_column(rows)
        is_table = column is not None and Path(path).suffix.lower() in FORMS
        return link_pictures(rows, column, self.picture_folder(path)) if is_table else rows

    def read_hub(self) -> dict[str, Any]:
        """All splits of a dataset of the Hub; masks are decoded later."""
        found = super().read_hub()
        return {split: keep_encoded(part, self.find_mask_column(part)) for split, part in found.items()}

    def find_mask_column(self, rows: Any) -> Any:
        """The column of masks: the one that is named, else one with a usual name."""
        given = self.data.label_column_name
        return given or next((name for name in MASK_COLUMNS if name in rows.column_names), None)

    def learn(self, rows: Mapping[str, Any]) -> None:
        """Find the columns and the classes."""
        super().learn(rows)
        first = rows["train"] if "train" in rows else next(iter(rows.values()))
        self.mask = self.find_mask_column(first) or "label"
        for split, part in rows.items():
            if split != "test":
                require_columns(part, [self.mask], source_name(self, split), "--label_column_name")
        hub_file = find_hub_file(self.data.dataset_name, NAMES_FILE, self.start)
        names = find_names([*self.files().values(), *([hub_file] if hub_file else [])])
        skipped = int(self.data.do_reduce_labels)
        self.names = names or name_numbers(first[self.mask], skipped)
        self.num_values = len(self.names) + skipped

    def find_problem(self, row: Row) -> str | None:
        """A picture that cannot be opened, a mask of another size or with unknown classes."""
        problem = super().find_problem(row)
        if problem is not None or self.mask not in row:
            return problem
        return find_unfit_mask(row[self.image], row[self.mask], self.num_values)

    def configure(self) -> dict[str, Any]:
        """The classes."""
        return name_classes(self.names)

    def processor_options(self) -> dict[str, Any]:
        """What class 0 means."""
        return {"do_reduce_labels": self.data.do_reduce_labels}

    def transform(self, split: str) -> Any:
        """Random parts to learn from, whole pictures to evaluate on."""
        return self.random_parts if split == "train" else self.whole_pictures

    def random_parts(self, rows: Batch) -> Batch:
        """A random part of each picture, or its mirror image."""
        return self.finish(rows, random_part)

    def whole_pictures(self, rows: Batch) -> Batch:
        """Each picture in the size that the model takes."""
        return self.finish(rows, whole_picture)

    def finish(self, rows: Batch, change: Any) -> Batch:
        """Pixels and their classes."""
        made: Batch = {"pixel_values": [], "labels": []}
        size, reduces = as_pair(size_of(self.processor)), self.data.do_reduce_labels
        for index, value in enumerate(rows[self.image]):
            mask = mask_picture(rows[self.mask][index], reduces) if self.mask in rows else None
            image, mask = change(decode_picture(value), mask, size)
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
        return measure_masks(prediction.predictions, prediction.label_ids, self.names, ignored)

    def show(self, inputs: Any, labels: Any, predictions: Any) -> Row:
        """The classes and the share of pixels that are right."""
        scores = predictions[0] if isinstance(predictions, (tuple, list)) else predictions
        found = self.decide(scores[None].float(), None)[0].cpu().numpy()
        shown: Row = {"prediction": share_classes(found, self.names)}
        if labels is not None:
            right = labels.cpu().numpy()
            hits = round(float((found == right)[right != IGNORED].mean()), 4)
            shown = {"target": share_classes(right, self.names), **shown, "pixels_right": hits}
        return shown

    def answers(self, rows: Any, features: Any, output: PredictionOutput) -> list[Row]:
        """A picture of the mask, and the share of each class in it."""
        folder, answers = Path(self.args.output_dir) / "predictions", []
        for index, (row, classes) in enumerate(zip(rows, output.predictions, strict=True)):
            name, size = name_of(row[self.image]), decode_picture(row[self.image]).size
            path = save_mask(classes, size, folder / f"{index:05}_{Path(name).stem}.png")
            answers.append({"image": name, "mask": path, "shares": share_classes(classes, self.names)})
        return answers
