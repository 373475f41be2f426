"""Masks: pictures whose pixels are classes; reading, measuring and drawing them."""

from __future__ import annotations

import colorsys
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from footplate.tasks.common.images import decode_picture, find_hub_file, find_pictures, name_of, table_of
from footplate.tasks.common.problems import TaskError
from footplate.tasks.common.reading import first_line
from footplate.tasks.common.recipe import Row
from footplate.tasks.common.transforms import (
    NEAREST,
    happens,
    import_pillow,
    mirror,
    pad_to,
    pick_below,
    resize,
)

if TYPE_CHECKING:
    from footplate.tasks.common.flags import ModelFlags

COLUMNS = ("label", "annotation", "mask", "labels")  # of masks, in the order of choice
IGNORED = 255  # pixels that have no class
NAMES_FILE = "id2label.json"


def read_pairs(path: str, split: str) -> Any:
    """The rows of a folder with `images/` and `masks/`: files of the same name belong together."""
    folder = Path(path)
    if not (folder / "images").is_dir():
        if split == "test":
            return table_of({"image": find_pictures(path, f"{split}_dir")})
        raise TaskError(f"--{split}_dir {path}: there must be a folder images and a folder masks in it.")
    images = find_pictures(str(folder / "images"), f"{split}_dir")
    found = {Path(file).stem: file for file in map(str, (folder / "masks").glob("*"))}
    masks = [found.get(Path(file).stem) for file in images]
    return table_of({"image": images, "label": masks} if any(masks) or split != "test" else {"image": images})


def find_column(rows: Any, given: str | None) -> Any:
    """The column of masks: the one that is named, else one with a usual name, else None."""
    return given or next((name for name in COLUMNS if name in rows.column_names), None)


def decode_mask(value: Any) -> Any:
    """The classes of all pixels."""
    image = decode_picture(value, None)
    if len(image.getbands()) > 1:
        raise ValueError(f"a mask has one channel with the numbers of classes, not {image.mode}")
    return np.asarray(image, dtype=np.int32)


def mask_picture(value: Any, reduces_labels: bool) -> Any:
    """The classes of all pixels as a picture that can be cropped.

    Args:
        value: The mask.
        reduces_labels: Class 0 means that there is none, and the others count from 1.
    """
    classes = decode_mask(value)
    if reduces_labels:
        classes = np.where((classes == 0) | (classes == IGNORED), IGNORED, classes - 1)
    return import_pillow().fromarray(classes.astype(np.int32))


def random_part(image: Any, mask: Any, size: tuple[int, int]) -> tuple[Any, Any]:
    """A random part of a picture and its mask, or their mirror images; what is added has no class."""
    height, width = size
    image, mask = pad_to(image, height, width), pad_to(mask, height, width, fill=IGNORED)
    top, left = pick_below(image.height - height + 1), pick_below(image.width - width + 1)
    box = (left, top, left + width, top + height)
    image, mask = image.crop(box), mask.crop(box)
    return (mirror(image), mirror(mask)) if happens(0.5) else (image, mask)


def whole_picture(image: Any, mask: Any, size: tuple[int, int]) -> tuple[Any, Any]:
    """A picture and its mask, if there is one, in another size."""
    return resize(image, size), None if mask is None else resize(mask, size, NEAREST)


def find_unfit_mask(picture: Any, value: Any, num_classes: int) -> str | None:
    """Why a mask does not fit its picture."""
    problem = find_broken_mask(value, num_classes)
    if problem is not None:
        return problem
    size, of_mask = decode_picture(picture).size, decode_mask(value).shape[::-1]
    if size == of_mask:
        return None
    return f"{name_of(picture)} has {size[0]} x {size[1]} pixels, but its mask {of_mask[0]} x {of_mask[1]}"


def find_broken_mask(value: Any, num_classes: int) -> str | None:
    """Why a mask cannot be used."""
    if value is None or (isinstance(value, Mapping) and value.get("bytes") is value.get("path") is None):
        return "the mask is missing; it needs the name of the picture, in the folder masks"
    try:
        classes = np.unique(decode_mask(value))
    except Exception as error:  # Pillow raises errors of many kinds
        return f"{name_of(value)} cannot be read as a mask ({first_line(error)})"
    bad = classes[(classes != IGNORED) & ((classes < 0) | (classes >= num_classes))]
    if len(bad):
        return f"{name_of(value)} has pixels of class {bad[0]}, but classes are 0 to {num_classes - 1}"
    return None


def count_classes(values: Iterable[Any]) -> int:
    """How many classes there are in masks: one more than the largest number."""
    largest = 0
    for value in values:
        if find_broken_mask(value, IGNORED) is None:
            classes = decode_mask(value)
            largest = max(largest, int(classes[classes != IGNORED].max(initial=0)))
    return largest + 1


def name_numbers(values: Iterable[Any], skipped: int) -> list[str]:
    """The classes that occur in masks, named by their numbers, without the first ones."""
    return [str(number) for number in range(skipped, count_classes(values))]


def find_names(folders: Iterable[str]) -> list[str] | None:
    """The names of classes in `id2label.json` of a folder or the one that it is in."""
    for folder in folders:
        for place in (Path(folder), Path(folder).parent):
            if (place / NAMES_FILE).is_file():
                return order_names(json.loads((place / NAMES_FILE).read_text(encoding="utf-8")))
    return None


def find_hub_names(dataset: str | None, start: ModelFlags) -> list[str] | None:
    """The names of classes that lie beside a dataset of the Hub."""
    file = find_hub_file(dataset, NAMES_FILE, start)
    return None if file is None else find_names([file])


def order_names(names: Mapping[str, str]) -> list[str]:
    """Names by number."""
    numbers = {int(number): name for number, name in names.items()}
    return [str(numbers.get(number, number)) for number in range(max(numbers) + 1)]


def measure_masks(predictions: Any, labels: Any, names: list[str], ignored: int | None) -> dict[str, float]:
    """Overlap over union and accuracy: their means over classes, over all pixels, and for each class.

    Args:
        predictions: Classes of pixels.
        labels: What they should be.
        names: Those of the classes.
        ignored: A class whose pixels do not count, beside those that have none.
    """
    counts = np.zeros((len(names), len(names)), dtype=np.int64)  # what it is, what it was taken for
    for predicted, right in zip(predictions, labels, strict=True):
        is_counted = (right >= 0) & (right != IGNORED) & (right != ignored)
        pairs = right[is_counted].astype(np.int64) * len(names) + predicted[is_counted]
        counts += np.bincount(pairs, minlength=counts.size).reshape(counts.shape)
    hits, present, found = counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):  # a class that does not occur has no figure
        overlap, accuracy = hits / (present + found - hits), hits / present
    return {
        "mean_iou": mean_of(overlap),
        "mean_accuracy": mean_of(accuracy),
        "overall_accuracy": float(hits.sum() / max(1, present.sum())),
        **{f"accuracy_{name}": float(value) for name, value in zip(names, accuracy, strict=True)},
        **{f"iou_{name}": float(value) for name, value in zip(names, overlap, strict=True)},
    }


def mean_of(values: Any) -> float:
    """The mean of those that are numbers."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def share_classes(classes: Any, names: list[str]) -> dict[str, float]:
    """The share of each class that occurs in a mask."""
    counted = np.bincount(classes[classes != IGNORED].ravel(), minlength=len(names)) / classes.size
    return {name: round(float(share), 4) for name, share in zip(names, counted, strict=True) if share}


def compare_masks(found: Any, right: Any, names: list[str]) -> Row:
    """What was found in a picture; beside what is right, if that is known, and the share of right pixels."""
    shown: Row = {"prediction": share_classes(found, names)}
    if right is None:
        return shown
    hits = round(float((found == right)[right != IGNORED].mean()), 4)
    return {"target": share_classes(right, names), **shown, "pixels_right": hits}


def save_mask(classes: Any, size: tuple[int, int], folder: str, index: int, name: str) -> str:
    """Write a mask as a picture; return its path.

    Args:
        classes: Of all pixels.
        size: Width and height of the picture.
        folder: Where its folder `predictions` is.
        index: The number of the row.
        name: The path of the picture that the mask is for.
    """
    path = Path(folder) / "predictions" / f"{index:05}_{Path(name).stem}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    resize(paint_mask(classes), size[::-1], NEAREST).save(path)
    return str(path)


def paint_mask(classes: Any) -> Any:
    """A picture whose pixels are classes, with a colour for each so that people can see them."""
    image = import_pillow().fromarray(np.asarray(classes, dtype=np.uint8)).convert("P")
    colours = [colorsys.hsv_to_rgb(number * 0.618 % 1, 0.75, 0.9) for number in range(1, 256)]
    image.putpalette([0, 0, 0] + [round(255 * part) for colour in colours for part in colour])
    return image
