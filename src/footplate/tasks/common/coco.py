"""Boxes and masks in the form of COCO: reading, checking, random changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from footplate.tasks.common.images import decode_picture
from footplate.tasks.common.problems import TaskError
from footplate.tasks.common.reading import check_file, import_datasets
from footplate.tasks.common.transforms import change_light, happens, import_pillow, mirror, pick_below

NAMES = ("annotations.json", "_annotations.coco.json", "instances.json")  # in a folder of pictures
Boxes = Any  # left, top, width and height of each object


def find_annotations(path: str, split: str) -> Path | None:
    """The file of annotations: the one that is given, or the one in a folder; a test needs none."""
    if not Path(path).is_dir():
        return Path(path)
    found = next((Path(path) / name for name in NAMES if (Path(path) / name).is_file()), None)
    if found is None and split != "test":
        raise TaskError(f"--{split}_dir {path}: there is no file of annotations in it ({', '.join(NAMES)}).")
    return found


def is_coco(path: Path) -> bool:
    """Whether a file is one JSON value of images and annotations."""
    if path.suffix.lower() != ".json":
        return False
    with path.open("rb") as file:
        start = file.read(1 << 16).lstrip()
    return start.startswith(b"{") and any(
        f'"{name}"'.encode() in start for name in ("images", "annotations", "categories")
    )


def read_coco(path: Path, split: str, folder: str) -> Any:
    """One row for each picture: the picture, and `objects` with boxes, names of classes and polygons.

    Args:
        path: The file of annotations.
        split: What the rows are for.
        folder: Where the pictures are.
    """
    check_file(str(path), f"{split}_file", "utf-8")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        names = {entry["id"]: str(entry["name"]) for entry in content.get("categories", [])}
        rows = {entry["id"]: row_of(entry, folder) for entry in content["images"]}
    except (KeyError, TypeError, ValueError) as error:
        raise TaskError(f"{path} is not in the form of COCO: {type(error).__name__}: {error}.") from None
    for number, entry in enumerate(content.get("annotations", []), start=1):
        row = rows.get(entry.get("image_id"))
        if row is None:
            raise TaskError(
                f"{path}: annotation {number} is of image {entry.get('image_id')}, which is not there."
            )
        for name, value in object_of(entry, number, names).items():
            row["objects"][name].append(value)
    if not rows:
        raise TaskError(f"{path} has no rows.")
    datasets = import_datasets()
    return datasets.Dataset.from_list(list(rows.values()), features=coco_features(datasets))


def row_of(entry: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """A picture without objects."""
    lists: dict[str, list[Any]] = {"id": [], "bbox": [], "category": [], "area": [], "segmentation": []}
    image = {"path": str(Path(folder) / entry["file_name"]), "bytes": None}
    return {"image": image, "image_id": int(entry["id"]), "objects": lists}


def object_of(entry: Mapping[str, Any], number: int, names: Mapping[Any, str]) -> dict[str, Any]:
    """An annotation, with the name of its class; a class that is unknown has none."""
    box = [float(value) for value in entry.get("bbox") or ()]
    shape = entry.get("segmentation")
    return {
        "id": int(entry.get("id", number)),
        "bbox": box,
        "category": names.get(entry.get("category_id")),
        "area": float(entry.get("area") or (box[2] * box[3] if len(box) == 4 else 0)),
        "segmentation": json.dumps(shape) if shape else None,
    }


def coco_features(datasets: Any) -> Any:
    """The columns of such rows."""
    text, number = datasets.Value("string"), datasets.Value("float64")
    objects = {
        "id": datasets.List(datasets.Value("int64")),
        "bbox": datasets.List(datasets.List(number)),
        "category": datasets.List(text),
        "area": datasets.List(number),
        "segmentation": datasets.List(text),
    }
    image = datasets.Image(decode=False)
    return datasets.Features({"image": image, "image_id": datasets.Value("int64"), "objects": objects})


def find_class_names(rows: Any, column: str) -> list[str]:
    """The names of classes: those that the dataset lists, else all that occur."""
    feature = (rows.features or {}).get(column)
    feature = getattr(feature, "feature", feature)  # a list of objects, or an object of lists
    category = feature.get("category") if isinstance(feature, Mapping) else None
    names = getattr(getattr(category, "feature", category), "names", None)
    if names:
        return list(names)
    return sorted({str(name) for entry in rows[column] for name in entry["category"] if name is not None})


def find_bad_box(objects: Mapping[str, Any], size: tuple[int, int], names: list[str]) -> str | None:
    """Why the objects of a picture cannot be used."""
    for number, (box, name) in enumerate(zip(objects["bbox"], objects["category"], strict=False), start=1):
        if name is None or (isinstance(name, str) and name not in names):
            return f"the class {name!r} of object {number} is not one of {', '.join(names[:10])}"
        if isinstance(name, int) and not 0 <= name < len(names):
            return f"the class {name} of object {number} is not a number below {len(names)}"
        if len(box) != 4 or box[2] <= 0 or box[3] <= 0:
            return f"the box {box} of object {number} is not left, top, width and height"
        left, top, right, bottom = clip_boxes([box], size)[0] @ CORNERS
        if right <= left or bottom <= top:
            return f"the box {box} of object {number} is outside the picture of {size[0]} x {size[1]} pixels"
    return None


CORNERS = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1]])  # sides to right and bottom


def clip_boxes(boxes: Any, size: tuple[int, int]) -> Boxes:
    """Boxes without what is outside a picture of that width and height."""
    corners = np.asarray(boxes, dtype=np.float64).reshape(-1, 4) @ CORNERS
    corners = corners.clip(0, [size[0], size[1]] * 2)
    corners[:, 2:] -= corners[:, :2]
    return corners


def corners_of(boxes: Any, size: tuple[int, int]) -> Any:
    """Boxes given as middle and sides in shares of a height and width, as corners in pixels."""
    boxes = boxes.reshape(-1, 4)
    height, width = size
    corners = np.hstack([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2])
    return corners * [width, height, width, height]


def annotate(number: int, boxes: Boxes, classes: list[Any], names: list[str]) -> dict[str, Any]:
    """The objects of a picture as image processors take them."""
    entries = [
        {
            "image_id": number,
            "category_id": names.index(name) if isinstance(name, str) else name,
            "bbox": box.tolist(),
            "area": float(box[2] * box[3]),
            "iscrowd": 0,
        }
        for box, name in zip(boxes, classes, strict=True)
    ]
    return {"image_id": number, "annotations": entries}


def change_boxes(image: Any, boxes: Boxes) -> tuple[Any, Boxes]:
    """A picture and its boxes, perhaps without a part of the border, mirrored, or in another light."""
    if happens(0.2) and len(boxes):
        corners = boxes @ CORNERS
        left, top = (pick_below(int(value) + 1) for value in corners[:, :2].min(axis=0))
        ends = np.ceil(corners[:, 2:].max(axis=0)).astype(int)
        right, bottom = (end + pick_below(side - end + 1) for end, side in zip(ends, image.size, strict=True))
        image, boxes = image.crop((left, top, right, bottom)), boxes - [left, top, 0, 0]
    if happens(0.5):
        image, boxes = mirror(image), boxes.copy()
        boxes[:, 0] = image.width - boxes[:, 0] - boxes[:, 2]
    return change_light(image), boxes


def draw_masks(objects: Mapping[str, Any], size: tuple[int, int]) -> Any:
    """One mask for each object: its polygons, its run lengths or, without either, its box."""
    shapes = objects.get("segmentation") or [None] * len(objects["bbox"])
    masks = [draw_mask(shape, box, size) for shape, box in zip(shapes, objects["bbox"], strict=True)]
    return np.stack(masks) if masks else np.zeros((0, size[1], size[0]), dtype=bool)


def draw_mask(shape: Any, box: Any, size: tuple[int, int]) -> Any:
    """The mask of an object."""
    from PIL import ImageDraw

    shape = json.loads(shape) if isinstance(shape, str) else shape
    if isinstance(shape, Mapping):  # run lengths, column by column, of pixels that are outside, inside, ...
        counts = shape["counts"]
        if not isinstance(counts, list):
            raise ValueError("run lengths must be a list of numbers, not packed text")
        values = np.repeat(np.arange(len(counts)) % 2 == 1, counts)
        return values.reshape(shape["size"][1], shape["size"][0]).T
    image = import_pillow().new("1", size)
    pen = ImageDraw.Draw(image)
    for polygon in shape or ():
        pen.polygon([tuple(point) for point in np.reshape(polygon, (-1, 2)).tolist()], fill=1)
    if not shape:
        left, top, width, height = box
        pen.rectangle((left, top, left + width - 1, top + height - 1), fill=1)
    return np.asarray(image, dtype=bool)


def size_of_picture(value: Any) -> tuple[int, int]:
    """Width and height."""
    width, height = decode_picture(value).size
    return width, height
