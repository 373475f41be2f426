"""The model a task starts from, and what reads its inputs."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from footplate.tasks.common.image_processors import build_image_processor, has_image_processor
from footplate.tasks.common.problems import TaskError
from footplate.tasks.common.reading import first_line
from footplate.tasks.common.vocabulary import train_tokenizer

if TYPE_CHECKING:
    from footplate.tasks.common.flags import ModelFlags
    from footplate.tasks.common.recipe import Recipe

logger = logging.getLogger(__name__)

NAME_A_MODEL = "Give a folder or a name of the Hub, or start from random weights with --model_type bert."


def load_config(recipe: Recipe) -> Any:
    """The configuration: of the pretrained model or, for random weights, that of its architecture."""
    flags, transformers = recipe.start, import_transformers()
    options = recipe.configure()
    name = flags.config_name or flags.model_name_or_path
    if name is not None:
        config = load(transformers.AutoConfig, name, flags, **options)
    elif flags.model_type is not None:
        if flags.model_type not in transformers.CONFIG_MAPPING:
            raise TaskError(f"--model_type {flags.model_type}: transformers knows no such architecture.")
        config = transformers.CONFIG_MAPPING[flags.model_type](**options)
    else:
        raise TaskError(f"There is no model to train: --model_name_or_path is missing. {NAME_A_MODEL}")
    if flags.config_overrides:
        try:
            config.update_from_string(flags.config_overrides)
        except ValueError as error:
            raise TaskError(f"--config_overrides {flags.config_overrides}: {error}") from None
    return config


def load_processor(recipe: Recipe, texts: Iterable[str]) -> Any:
    """What reads the inputs: a tokenizer, an image processor, a feature extractor.

    Args:
        recipe: The task.
        texts: Those of the training set, for a tokenizer that is trained on them.
    """
    made = recipe.build_processor(texts)
    if made is not None:
        return made
    flags, transformers = recipe.start, import_transformers()
    own = next(
        (n for n in ("image_processor_name", "feature_extractor_name") if getattr(flags, n, None)), None
    )
    name = (getattr(flags, own) if own else None) or flags.tokenizer_name or flags.model_name_or_path
    if recipe.reader == "AutoTokenizer" and flags.train_tokenizer:
        return train_tokenizer(texts, flags.vocab_size, flags.model_type or "")
    if recipe.reader == "AutoImageProcessor" and not has_image_processor(name):
        image_size = getattr(flags, "image_size", None)
        return build_image_processor(recipe.config, image_size, recipe.processor_options())
    if name is None:
        raise TaskError(
            "There is no tokenizer: give --tokenizer_name, or train one on the data with --train_tokenizer."
        )
    options: dict[str, Any] = {}
    if recipe.reader == "AutoTokenizer":
        options["use_fast"] = flags.use_fast_tokenizer
        config = recipe.config
        if config is not None and config.model_type in ("bloom", "gpt2", "roberta", "deberta"):
            options["add_prefix_space"] = recipe.gives_words
    elif recipe.reader == "AutoImageProcessor":
        options["backend"] = "pil"  # torchvision is not needed
    return load(getattr(transformers, recipe.reader), name, flags, **options, **recipe.processor_options())


def load_model(recipe: Recipe) -> Any:
    """The model with the task's head, pretrained or with random weights."""
    flags, transformers = recipe.start, import_transformers()
    kind = getattr(transformers, recipe.head)
    options = {
        name: getattr(flags, name) for name in ("dtype", "attn_implementation") if getattr(flags, name)
    }
    if flags.model_name_or_path is None:
        is_auto = hasattr(kind, "from_config")  # a class that chooses the architecture by the configuration
        trust = {"trust_remote_code": flags.trust_remote_code}
        model = kind.from_config(recipe.config, **trust, **options) if is_auto else kind(recipe.config)
        logger.info("Training from random weights: %s parameters.", f"{model.num_parameters():,}")
        return recipe.adjust(model)
    model = load(
        kind,
        flags.model_name_or_path,
        flags,
        config=recipe.config,
        ignore_mismatched_sizes=flags.ignore_mismatched_sizes,
        **options,
        **recipe.model_options(),
    )
    return recipe.adjust(model)


def load(kind: Any, name: str, flags: ModelFlags, **options: Any) -> Any:
    """Something that transformers loads; if it cannot, an error that names what is missing."""
    try:
        return kind.from_pretrained(
            name,
            cache_dir=flags.cache_dir,
            revision=flags.model_revision,
            token=flags.token,
            trust_remote_code=flags.trust_remote_code,
            **options,
        )
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        is_folder = Path(name).is_dir()
        remedy = "" if is_folder else " It is no folder on this machine, so it was looked up on the Hub."
        raise TaskError(
            f"{kind.__name__} cannot be loaded from {name}: {first_line(error)}{remedy}"
        ) from error


def fit_embeddings(model: Any, tokenizer: Any) -> None:
    """Give the model an embedding for every word of the tokenizer."""
    if len(tokenizer) > model.get_input_embeddings().weight.shape[0]:
        model.resize_token_embeddings(len(tokenizer))


def import_transformers() -> Any:
    """The package `transformers`."""
    try:
        import transformers
    except ImportError:
        raise TaskError("Tasks need the package transformers: pip install footplate[tasks]") from None
    return transformers
