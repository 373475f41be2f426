"""Objects with masks: from maps of a dataset, and from what a model says about each query."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from footplate.tasks.common.coco import draw_masks
from footplate.tasks.common.detection_scores import MOST, Objects
from footplate.tasks.common.images import decode_picture
from footplate.tasks.common.transforms import NEAREST, import_pillow, resize


def read_map(value: Any, reduces_labels: bool) -> tuple[list[int], Any]:
    """Classes and masks of a picture whose first channel is the class and whose second is the object.

    Args:
        value: The picture.
        reduces_labels: Class 0 is no object, and the others count from 1.
    """
    pixels = np.asarray(decode_picture(value, "RGB"))
    classes, masks = [], []
    for number in np.unique(pixels[..., 1]):
        mask = pixels[..., 1] == number
        label = int(pixels[..., 0][mask][0])
        if label or not reduces_labels:
            classes.append(label - reduces_labels)
            masks.append(mask)
    return classes, np.stack(masks) if masks else np.zeros((0, *pixels.shape[:2]), dtype=bool)


def read_objects(objects: Any, size: tuple[int, int], names: list[str]) -> tuple[list[int], Any]:
    """Classes and masks of the objects of a row in the form of COCO."""
    classes = [name if isinstance(name, int) else names.index(name) for name in objects["category"]]
    return classes, draw_masks(objects, size)


def resize_masks(masks: Any, size: tuple[int, int]) -> Any:
    """Masks in another height and width."""
    pillow = import_pillow()
    resized = [np.asarray(resize(pillow.fromarray(mask), size, NEAREST)) for mask in masks]
    return np.stack(resized) if resized else np.zeros((0, *size), dtype=bool)


def find_instances(
    scores: torch.Tensor, masks: torch.Tensor, size: tuple[int, int], threshold: float = 0.0
) -> Objects:
    """The objects of a picture: the best pairs of query and class, and the pixels of each.

    Args:
        scores: Of the classes of each query; the last class means that there is no object.
        masks: Scores of pixels of each query.
        size: Height and width of the masks to make.
        threshold: Objects with lower scores are left out.
    """
    shares = scores.float().softmax(dim=-1)[:, :-1]
    best = shares.flatten().topk(min(MOST, shares.numel()))
    queries, labels = best.indices // shares.shape[1], best.indices % shares.shape[1]
    pixels = torch.nn.functional.interpolate(
        masks.float()[None], size=size, mode="bilinear", align_corners=False
    )[0]
    inside = pixels > 0
    # how sure the model is of the pixels that it takes for the object
    sureness = (pixels.sigmoid() * inside).sum(dim=(1, 2)) / inside.sum(dim=(1, 2)).clamp(min=1)
    values = best.values * sureness[queries]
    is_kept = (values >= threshold) & inside.any(dim=2).any(dim=1)[queries]
    queries, labels, values = queries[is_kept], labels[is_kept], values[is_kept]
    return Objects(labels.numpy(), inside[queries].numpy(), values.numpy())
