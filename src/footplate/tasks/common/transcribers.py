"""Models that listen, then write: a configuration for a new tokenizer, and the language to write."""

from __future__ import annotations

from typing import Any

from footplate.tasks.common.problems import TaskError
from footplate.tasks.common.vocabulary import describe_tokens


def fit_configuration(config: Any, tokenizer: Any) -> None:
    """Make the configuration of a model with random weights fit a tokenizer that was trained on the spot."""
    found = describe_tokens(tokenizer, is_encoder_decoder=True)
    config.update(found)
    if hasattr(config, "decoder"):
        config.decoder.update(found)
    if config.model_type == "whisper":
        config.begin_suppress_tokens = None  # they are numbers of another tokenizer's tokens


def set_language(model: Any, tokenizer: Any, language: str | None, task: str) -> None:
    """Tell a model of many languages and its tokenizer what to write; one of one language needs no telling.

    Args:
        model: Begins texts with the tokens of language and task.
        tokenizer: Begins transcripts with them.
        language: The language of the speech.
        task: Transcribe, or translate to English.
    """
    if getattr(model.generation_config, "is_multilingual", False):
        try:
            tokenizer.set_prefix_tokens(language=language, task=task)
        except ValueError as error:
            raise TaskError(f"--language {language} --task {task}: {error}") from None
        model.generation_config.language, model.generation_config.task = language, task
        model.generation_config.forced_decoder_ids = None  # language and task say the same
    elif language is not None:
        raise TaskError(f"--language {language}: the model knows one language only. Leave it out.")
