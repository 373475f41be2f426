"""How a model generates during evaluation: which module, with which settings, and whether they agree."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from torch import nn

from footplate.wrappers import bare_model, unwrap_model

logger = logging.getLogger(__name__)

DEFAULT_LENGTH = 20  # new tokens that transformers generates without a setting

# ---- the model ----


def get_generator(model: nn.Module) -> Any:
    """The module whose `generate` is called: an adapter's own, else that of the model inside wrappers."""
    for candidate in (unwrap_model(model), bare_model(model)):
        can_generate = getattr(candidate, "can_generate", lambda: True)
        if callable(getattr(candidate, "generate", None)) and can_generate():
            return candidate
    raise ValueError(
        f"predict_with_generate=True needs a model with a `generate` method; {type(model).__name__} has "
        "none. Use a model with a language modelling head, write `generate(input_ids, **kwargs)`, or set "
        "predict_with_generate=False."
    )


def continues_prompt(model: nn.Module) -> bool:
    """Whether the model has no encoder, so that a generated text begins with its input."""
    bare = bare_model(model)
    is_encoder_decoder = getattr(getattr(bare, "config", None), "is_encoder_decoder", None)
    if is_encoder_decoder is None:  # a plain module has the attribute that also describes its loss
        return bool(getattr(bare, "loss_shifts_labels", False))
    return not is_encoder_decoder


def get_pad_token_id(processing_class: Any, model: nn.Module) -> int:
    """The token that pads short rows: the pad token, else the end of text, of the tokenizer or the model."""
    bare = bare_model(model)
    config = getattr(bare, "config", None)
    tokenizer = getattr(processing_class, "tokenizer", processing_class)
    homes = (getattr(bare, "generation_config", None), config, getattr(config, "decoder", None))
    places = [(tokenizer, "pad_token_id"), (tokenizer, "eos_token_id")]
    places += [(home, name) for name in ("pad_token_id", "eos_token_id") for home in homes]
    for home, name in places:
        token = getattr(home, name, None)
        token = token[0] if isinstance(token, list) else token
        if token is not None:
            return int(token)
    raise ValueError(
        "predict_with_generate=True needs a pad token, because generated texts differ in length. Pass "
        "a tokenizer with pad_token_id as `processing_class`, or set model.config.pad_token_id."
    )


# ---- the settings ----


def load_generation_config(given: Any) -> Any:
    """A `GenerationConfig`: a copy of a given one, or read from a file, a folder or a name on the Hub."""
    config = deepcopy(given) if hasattr(given, "validate") else _read_generation_config(given)
    try:
        config.validate(strict=True)
    except ValueError as error:
        raise ValueError(
            f"generation_config holds settings that contradict each other: {error} Change them: a model "
            "with such a configuration cannot be saved."
        ) from None
    return config


def _read_generation_config(given: Any) -> Any:
    try:
        from transformers import GenerationConfig
    except ImportError:
        raise ImportError(
            "generation_config needs transformers: pip install footplate[hf], or pass the settings of "
            "generate to evaluate() and predict()."
        ) from None
    if not isinstance(given, (str, os.PathLike)):
        raise TypeError(f"generation_config={given!r} is neither a GenerationConfig nor the path of one.")
    path = Path(given)
    source, options = (path.parent, {"config_file_name": path.name}) if path.is_file() else (given, {})
    try:
        return GenerationConfig.from_pretrained(source, **options)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"generation_config={str(given)!r} cannot be read: it must be a JSON file, a folder with "
            f"a generation_config.json, or the name of a model on the Hub. {error}"
        ) from error


def check_is_looked_at(prediction_loss_only: bool, is_looked_at: bool, evaluates: bool) -> None:
    """Refuse, or warn of, settings under which generated texts are thrown away."""
    if prediction_loss_only:
        raise ValueError(
            "predict_with_generate=True and prediction_loss_only=True contradict each other: the "
            "generated texts would be thrown away. Set one of them to False."
        )
    if evaluates and not is_looked_at:
        logger.warning(
            "predict_with_generate=True generates nothing in evaluate(): without compute_metrics the "
            "texts would not be used. Pass compute_metrics to Seq2SeqTrainer; predict() always generates."
        )


def check_settings(settings: Mapping[str, Any], config: Any, takes: Callable[[str], bool]) -> None:
    """Check that the settings of a call agree with each other and with those of the model.

    Args:
        settings: What is passed to `generate`.
        config: The model's `GenerationConfig`, or None.
        takes: Whether `generate` takes a parameter of that name.
    """
    unknown = [name for name in settings if not takes(name)]
    if unknown:
        raise ValueError(f"The model's generate does not take {unknown}. Remove these settings.")

    def value_of(name: str) -> Any:
        value = settings.get(name)
        return getattr(config, name, None) if value is None else value

    for name in ("max_length", "max_new_tokens", "num_beams", "num_return_sequences"):
        if value_of(name) is not None and value_of(name) < 1:
            raise ValueError(f"{_named(name)}={value_of(name)} generates nothing. Set it to 1 or more.")
    _check_lengths(settings, value_of)
    num_beams, num_sequences = value_of("num_beams") or 1, value_of("num_return_sequences") or 1
    if num_sequences > num_beams and not (value_of("do_sample") and num_beams == 1):
        raise ValueError(
            f"num_return_sequences={num_sequences} asks for more texts than {_named('num_beams')}="
            f"{num_beams} can give. Raise generation_num_beams, ask for fewer, or set do_sample=True."
        )


def _check_lengths(settings: Mapping[str, Any], value_of: Callable[[str], Any]) -> None:
    max_new_tokens = value_of("max_new_tokens")
    if settings.get("max_length") is not None and max_new_tokens is not None:
        raise ValueError(
            f"{_named('max_length')}={settings['max_length']} and max_new_tokens={max_new_tokens} both limit "
            "the length, and generate would silently use the second. Set only one: leave out "
            "generation_max_length, or set max_new_tokens of the generation_config to None."
        )
    # limits on new tokens override limits on the whole length: only the pair in force can contradict itself
    kind = "length" if max_new_tokens is None else "new_tokens"
    least, most = value_of(f"min_{kind}"), value_of(f"max_{kind}")
    if least is not None and most is not None and least > most:
        whose = "" if settings.get(f"min_{kind}") is not None else " of the model's generation_config"
        raise ValueError(
            f"min_{kind}={least}{whose} is more than {_named(f'max_{kind}')}={most}. Lower the minimum in "
            "generation_config, or raise the maximum."
        )


def _named(name: str) -> str:
    """A setting of `generate`, with the training argument that sets it, for messages."""
    arguments = {"max_length": "generation_max_length", "num_beams": "generation_num_beams"}
    return f"{name} ({arguments[name]})" if name in arguments else name


def describe_settings(settings: Mapping[str, Any], config: Any) -> tuple[str, bool]:
    """One line that says how texts are generated, and whether their length is only a default."""
    chosen = config.to_diff_dict() if hasattr(config, "to_diff_dict") else {}
    chosen = {**chosen, **settings}
    shown = ", ".join(
        f"{name}={value}"
        for name, value in sorted(chosen.items())
        # a switch that is off does not change the text
        if value is not None and value is not False and not name.startswith(("_", "transformers_version"))
    )
    if config is None or any(chosen.get(name) is not None for name in ("max_length", "max_new_tokens")):
        return f"Evaluation generates with {shown or 'the defaults of the model'}.", False
    return (
        f"No setting limits the length of generated texts, so they end after {DEFAULT_LENGTH} tokens. Set "
        f"generation_max_length, or max_new_tokens in generation_config. Evaluation generates with {shown}."
    ), True
