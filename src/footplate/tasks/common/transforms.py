"""Pictures to pixels: resize, crop, flip, normalise. Chance comes from torch, so that a run repeats it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from footplate.tasks.common.problems import TaskError

NEAREST, BILINEAR, BICUBIC = 0, 2, 3  # how Pillow mixes pixels
Size = int | tuple[int, int]  # the shorter side, or height and width


def import_pillow() -> Any:
    """The module `Image` of Pillow."""
    try:
        from PIL import Image
    except ImportError:
        raise TaskError("Tasks of pictures need Pillow: pip install footplate[tasks]") from None
    return Image


def as_pair(size: Size) -> tuple[int, int]:
    """Height and width."""
    return (size, size) if isinstance(size, int) else size


def size_of(processor: Any) -> Size:
    """The size of pictures that an image processor makes."""
    size = dict(processor.size)
    if "shortest_edge" in size:
        return int(size["shortest_edge"])
    return int(size["height"]), int(size["width"])


def resize(image: Any, size: Size, resample: int = BILINEAR) -> Any:
    """The picture with its shorter side, or both sides, of that length."""
    if isinstance(size, int):
        short, long = sorted(image.size)
        other = int(size * long / short)
        width, height = (size, other) if image.width <= image.height else (other, size)
    else:
        height, width = size
    return image if image.size == (width, height) else image.resize((width, height), resample)


def center_crop(image: Any, size: Size) -> Any:
    """The middle of a picture; black is added where it is too small."""
    height, width = as_pair(size)
    image = pad_to(image, height, width)
    left, top = round((image.width - width) / 2), round((image.height - height) / 2)
    return image.crop((left, top, left + width, top + height))


def pad_to(image: Any, height: int, width: int, fill: int = 0, is_centered: bool = True) -> Any:
    """The picture with a border of `fill`, if it is smaller than asked for."""
    more_width, more_height = max(0, width - image.width), max(0, height - image.height)
    if not more_width and not more_height:
        return image
    left, top = (more_width // 2, more_height // 2) if is_centered else (0, 0)
    box = (-left, -top, image.width + more_width - left, image.height + more_height - top)
    padded = import_pillow().new(
        image.mode, (box[2] - box[0], box[3] - box[1]), (fill,) * len(image.getbands())
    )
    padded.paste(image, (left, top))
    return padded


def random_resized_crop(
    image: Any,
    size: Size,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    resample: int = BILINEAR,
) -> Any:
    """A random part of a picture, resized.

    Args:
        image: The picture.
        size: What the part becomes.
        scale: The least and the largest share of the area.
        ratio: The least and the largest ratio of width to height.
        resample: How pixels are mixed.
    """
    left, top, width, height = pick_part(image.width, image.height, scale, ratio)
    part = image.crop((left, top, left + width, top + height))
    return resize(part, as_pair(size), resample)


def pick_part(
    width: int, height: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> tuple[int, int, int, int]:
    """Left, top, width and height of a random part; of the middle, if ten attempts do not fit."""
    limits = torch.log(torch.tensor(ratio))
    for _ in range(10):
        area = width * height * torch.empty(1).uniform_(scale[0], scale[1]).item()
        aspect = torch.exp(torch.empty(1).uniform_(float(limits[0]), float(limits[1]))).item()
        part_width, part_height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < part_width <= width and 0 < part_height <= height:
            top = pick_below(height - part_height + 1)
            return pick_below(width - part_width + 1), top, part_width, part_height
    aspect = min(max(width / height, ratio[0]), ratio[1])
    part_width, part_height = min(width, round(height * aspect)), min(height, round(width / aspect))
    return (width - part_width) // 2, (height - part_height) // 2, part_width, part_height


def pick_below(limit: int) -> int:
    """A random number from 0 to below the limit."""
    return int(torch.randint(0, limit, size=(1,)).item())


def happens(probability: float) -> bool:
    """Whether something of this probability happens now."""
    return bool(torch.rand(1).item() < probability)


def flip_by_chance(image: Any) -> Any:
    """The picture, or its mirror image."""
    return mirror(image) if happens(0.5) else image


def mirror(image: Any) -> Any:
    """Left and right exchanged."""
    return image.transpose(import_pillow().Transpose.FLIP_LEFT_RIGHT)


def change_light(image: Any) -> Any:
    """The picture, or one that is up to a fifth brighter or darker, with more or less contrast."""
    if not happens(0.5):
        return image
    contrast, brightness = (torch.empty(1).uniform_(-0.2, 0.2).item() for _ in range(2))
    values = np.asarray(image, np.float32) * (1 + contrast) + 255 * brightness
    return import_pillow().fromarray(values.clip(0, 255).astype(np.uint8))


def to_pixels(image: Any, processor: Any = None) -> torch.Tensor:
    """Channels, height and width from 0 to 1, then normalised as the processor says."""
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div(255)
    mean, std = getattr(processor, "image_mean", None), getattr(processor, "image_std", None)
    if mean is None or std is None:
        return pixels
    mean, std = (torch.as_tensor(values, dtype=torch.float32).view(-1, 1, 1) for values in (mean, std))
    return (pixels - mean) / std
