"""Small pictures for the tests of tasks: coloured squares and circles on a dark ground."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

COLOURS = {"red": (220, 40, 40), "green": (40, 200, 60), "blue": (50, 70, 220)}
# a random model that learns in seconds
VIT = (
    "image_size=16,patch_size=4,hidden_size=32,num_hidden_layers=2,num_attention_heads=2,intermediate_size=64,"
    "hidden_dropout_prob=0.0,attention_probs_dropout_prob=0.0"
)


def draw(shape: str, colour: str, size: int = 20, box: Any = None) -> Image.Image:
    """One shape on a dark ground."""
    image = Image.new("RGB", (size, size), (20, 20, 20))
    draw_on(image, shape, COLOURS[colour], box or (4, 4, size - 5, size - 5))
    return image


def draw_on(image: Image.Image, shape: str, fill: Any, box: Any) -> None:
    """A square or a circle within a box: left, top, right and bottom."""
    pen = ImageDraw.Draw(image)
    (pen.rectangle if shape == "square" else pen.ellipse)(box, fill=fill)


def random_box(chance: random.Random, size: int, sides: tuple[int, int]) -> tuple[int, int, int, int]:
    """A random box within a picture: left, top, right and bottom, all included."""
    side = chance.randint(*sides)
    left, top = chance.randint(0, size - side), chance.randint(0, size - side)
    return left, top, left + side - 1, top + side - 1


def write_folders(folder: Path, count: int, seed: int, names: Any = tuple(COLOURS)) -> Path:
    """One folder for each colour, with `count` pictures each."""
    chance = random.Random(seed)
    for name in names:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            shape, box = chance.choice(["square", "circle"]), random_box(chance, 20, (10, 16))
            draw(shape, name, box=box).save(folder / name / f"{number:03}.png")
    return folder
