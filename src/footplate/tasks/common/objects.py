"""What the tasks share that find objects in pictures: reading, classes, where to evaluate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from footplate import HfArg
from footplate.tasks.common.coco import (
    find_annotations,
    find_bad_box,
    find_class_names,
    is_coco,
    read_coco,
    size_of_picture,
)
from footplate.tasks.common.images import PICTURES, ImageFlags, ImageRecipe
from footplate.tasks.common.labels import name_classes
from footplate.tasks.common.recipe import Batch, Row
from footplate.tasks.common.running import check_columns


@dataclass
class ObjectFlags(ImageFlags):
    """Where pictures are, and which answers to give."""

    image_dir: str | None = HfArg(
        default=None, help="Folder of the pictures that a file names (default: its own)."
    )
    score_threshold: float = HfArg(default=0.5, help="Objects with lower scores are no answers.")


class ObjectRecipe(ImageRecipe):
    """Pictures and their objects, in the form of COCO."""

    seeds_split = True
    names: list[str]
    objects = "objects"  # column of boxes, classes and masks

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

    def learn(self, rows: Mapping[str, Any]) -> None:
        """Find the column of pictures and the classes."""
        super().learn(rows)
        check_columns(self, rows, [], [self.objects], "a column objects")
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

    def transform(self, split: str) -> Any:
        """Changed by chance to learn from, as they are to evaluate on."""
        return self.changed_pictures if split == "train" else self.whole_pictures

    def collator(self) -> Any:
        """Pictures in one tensor, objects as lists: each picture has its own number of them."""
        return collate_objects

    def changed_pictures(self, rows: Batch) -> Batch:
        """Pictures to learn from."""
        raise NotImplementedError

    def whole_pictures(self, rows: Batch) -> Batch:
        """Pictures to evaluate on."""
        raise NotImplementedError


def collate_objects(rows: list[Any]) -> dict[str, Any]:
    """The batch of some pictures."""
    batch: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    return {**batch, "pixel_values": torch.stack(batch["pixel_values"])}


def first_tensors(outputs: Any) -> tuple[torch.Tensor, ...]:
    """The two tensors that come first among all that a model gives: scores of classes, boxes or masks."""
    return tuple(part for part in outputs if isinstance(part, torch.Tensor))[:2]
