"""An image processor for a model that starts from random weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILES = ("preprocessor_config.json", "processor_config.json")


def has_image_processor(name: str | None) -> bool:
    """Whether an image processor can be loaded by this name: a folder may hold only a model."""
    if name is None:
        return False
    return not Path(name).is_dir() or any((Path(name) / file).is_file() for file in FILES)


def build_image_processor(config: Any, image_size: int | None, options: Mapping[str, Any]) -> Any:
    """The image processor of an architecture, by Pillow.

    Args:
        config: The configuration; it names the architecture and, often, the size of pictures.
        image_size: The size of pictures, if it is another.
        options: Further settings.
    """
    from transformers import ViTImageProcessorPil
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING

    try:
        kind = IMAGE_PROCESSOR_MAPPING[type(config)]["pil"] or ViTImageProcessorPil
    except KeyError:
        kind = ViTImageProcessorPil
    size = image_size or getattr(getattr(config, "vision_config", config), "image_size", None)
    sizes: dict[str, Any] = {}
    if size is not None:
        height, width = (size, size) if isinstance(size, int) else tuple(size)
        usual = kind().size
        exact = {"height": height, "width": width}
        sizes = {"size": {"shortest_edge": height} if "shortest_edge" in dict(usual) else exact}
        if getattr(kind, "crop_size", None) is not None:
            sizes["crop_size"] = exact
    return kind(**{**sizes, **options})
