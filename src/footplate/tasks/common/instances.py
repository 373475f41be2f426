"""Objects with masks: from maps of a dataset, and from what a model says about each query."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

from footplate.tasks.common.coco import draw_masks
from footplate.tasks.common.detection_scores import MOST, Objects
from footplate.tasks.common.images import decode_picture
from footplate.tasks.common.reading import first_line
from footplate.tasks.common.recipe import Row
from footplate.tasks.common.transforms import NEAREST, change_light, happens, import_pillow, mirror, resize


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


def names_in_map(row: Row, reduces_labels: bool) -> list[str]:
    """The names of classes that a row of maps tells."""
    numbers = row["semantic_class_to_id"]
    numbers = json.loads(numbers) if isinstance(numbers, str) else numbers
    known = {number: name for name, number in numbers.items() if number is not None}
    names = [known.get(number, str(number)) for number in range(max(known) + 1)]
    return names[1:] if reduces_labels else names


def read_objects(objects: Any, size: tuple[int, int], names: list[str]) -> tuple[list[int], Any]:
    """Classes and masks of the objects of a row in the form of COCO."""
    classes = [name if isinstance(name, int) else names.index(name) for name in objects["category"]]
    return classes, draw_masks(objects, size)


def find_bad_mask(objects: Any, size: tuple[int, int], names: list[str]) -> str | None:
    """Why the masks of objects cannot be used."""
    try:
        _, masks = read_objects(objects, size, names)
    except (ValueError, TypeError, KeyError) as error:
        return f"the mask of an object cannot be read ({first_line(error)})"
    return None if all(mask.any() for mask in masks) else "the mask of an object is empty"


def change_masks(image: Any, masks: Any) -> tuple[Any, Any]:
    """A picture and its masks, perhaps mirrored or in another light."""
    if happens(0.5):
        image, masks = mirror(image), masks[:, :, ::-1]
    return change_light(image), masks


def resize_masks(masks: Any, size: tuple[int, int]) -> Any:
    """Masks in another height and width."""
    pillow = import_pillow()
    resized = [np.asarray(resize(pillow.fromarray(mask), size, NEAREST)) for mask in masks]
    return np.stack(resized) if resized else np.zeros((0, *size), dtype=bool)


def find_instances(scores: Any, masks: Any, size: tuple[int, int], threshold: float = 0.0) -> Objects:
    """The objects of a picture: the best pairs of query and class, and the pixels of each.

    Args:
        scores: Of the classes of each query; the last class means that there is no object.
        masks: Scores of pixels of each query.
        size: Height and width of the masks to make.
        threshold: Objects with lower scores are left out.
    """
    shares = torch.as_tensor(scores).float().softmax(dim=-1)[:, :-1]
    best = shares.flatten().topk(min(MOST, shares.numel()))
    queries, labels = best.indices // shares.shape[1], best.indices % shares.shape[1]
    pixels = torch.nn.functional.interpolate(
        torch.as_tensor(masks).float()[None], size=size, mode="bilinear", align_corners=False
    )[0]
    inside = pixels > 0
    # how sure the model is of the pixels that it takes for the object
    sureness = (pixels.sigmoid() * inside).sum(dim=(1, 2)) / inside.sum(dim=(1, 2)).clamp(min=1)
    values = best.values * sureness[queries]
    is_kept = (values >= threshold) & inside.any(dim=2).any(dim=1)[queries]
    queries, labels, values = queries[is_kept], labels[is_kept], values[is_kept]
    return Objects(labels.numpy(), inside[queries].numpy(), values.numpy())


def describe_instances(found: Objects, names: list[str]) -> list[Row]:
    """The objects of a picture in words, numbered from 1 on."""
    entries = zip(found.labels, found.scores, strict=True)
    return [
        {"number": number, "label": names[int(label)], "score": round(float(score), 4)}
        for number, (label, score) in enumerate(entries, start=1)
    ]


def number_pixels(found: Objects, size: tuple[int, int]) -> Any:
    """The number of the object that each pixel belongs to, 0 if there is none; the best one is on top."""
    numbers = np.zeros((size[1], size[0]), dtype=np.uint8)
    for number, mask in reversed(list(enumerate(found.shapes, start=1))):
        numbers[mask] = number
    return numbers
