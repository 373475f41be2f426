"""Pictures and texts for models of both: what reads them, and which ones are alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from footplate.tasks.common.image_processors import build_image_processor, has_image_processor
from footplate.tasks.common.models import import_transformers, load
from footplate.tasks.common.problems import TaskError
from footplate.tasks.common.recipe import Recipe
from footplate.tasks.common.vocabulary import train_tokenizer


def load_pair(recipe: Recipe, texts: Iterable[str]) -> Any:
    """A tokenizer and an image processor in one."""
    tokenizer, images = load_reader(recipe, texts), load_viewer(recipe)
    return import_transformers().VisionTextDualEncoderProcessor(images, tokenizer)


def load_reader(recipe: Recipe, texts: Iterable[str]) -> Any:
    """The tokenizer: the one that is named, that of the model, or one that is trained on the texts."""
    start = recipe.start
    name = start.tokenizer_name or start.model_name_or_path
    if start.train_tokenizer:
        tokenizer = train_tokenizer(texts, start.vocab_size, "bert")
        # the part of CLIP that reads takes its vector from the token that ends a text
        ids = {"bos_token_id": tokenizer.cls_token_id, "eos_token_id": tokenizer.sep_token_id}
        ids.update(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)
        recipe.config.text_config.update(ids)
        return tokenizer
    if name is None:
        raise TaskError("There is no tokenizer: give --tokenizer_name, or train one: --train_tokenizer.")
    return load(import_transformers().AutoTokenizer, name, start, use_fast=start.use_fast_tokenizer)


def load_viewer(recipe: Recipe) -> Any:
    """The image processor: the one that is named, that of the model, or one made anew."""
    start: Any = recipe.start
    name = start.image_processor_name or start.model_name_or_path
    if name is not None and has_image_processor(name):
        return load(import_transformers().AutoImageProcessor, name, start, backend="pil")
    return build_image_processor(recipe.config, start.image_size, {})


def find_nearest(images: Any, texts: Any, captions: Sequence[str]) -> list[tuple[str, float]]:
    """For each picture the caption among all that is nearest, and how alike they are.

    Args:
        images: A vector for each picture.
        texts: A vector for each caption.
        captions: The captions.
    """
    likeness = normalise(images) @ normalise(texts).T
    return [(captions[int(line.argmax())], round(float(line.max()), 4)) for line in likeness]


def normalise(vectors: Any) -> Any:
    """Vectors of length 1."""
    vectors = np.asarray(vectors)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
