"""Changes to a model that last for one run: embedding noise, recomputation, token ids."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from footplate.wrappers import bare_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from footplate.arguments import TrainingArguments

logger = logging.getLogger(__name__)


@contextmanager
def embedding_noise(model: nn.Module, alpha: float | None) -> Iterator[None]:
    """Add NEFTune noise to the input embeddings while training; None adds none."""
    if alpha is None:
        yield
        return
    bare: Any = bare_model(model)
    if not hasattr(bare, "get_input_embeddings"):
        raise ValueError(
            f"neftune_noise_alpha={alpha} needs a model with get_input_embeddings(); {type(bare).__name__} "
            "has none. Add that method, or leave neftune_noise_alpha unset."
        )
    handle = bare.get_input_embeddings().register_forward_hook(_noise_hook(alpha))
    try:
        yield
    finally:
        handle.remove()


def _noise_hook(alpha: float) -> Callable[[nn.Module, Any, torch.Tensor], torch.Tensor]:
    def add_noise(module: nn.Module, inputs: Any, embedded: torch.Tensor) -> torch.Tensor:
        if not module.training:
            return embedded
        # the bound stays a float32 tensor as in the original: a Python float would move the last bit
        bound = float(alpha / torch.sqrt(torch.tensor(embedded.size(1) * embedded.size(2))))
        return embedded + torch.zeros_like(embedded).uniform_(-bound, bound)

    return add_noise


def enable_recompute(model: Any, args: TrainingArguments) -> None:
    """Turn on gradient checkpointing where the arguments ask for it."""
    if not args.gradient_checkpointing:
        return
    if not hasattr(model, "gradient_checkpointing_enable"):
        raise ValueError(
            f"gradient_checkpointing=True needs a model with gradient_checkpointing_enable(); "
            f"{type(model).__name__} has none. Add that method, or set gradient_checkpointing=False."
        )
    options = dict(args.gradient_checkpointing_kwargs or {})
    own = {name: options.pop(name) for name in ("every_n_layers", "offload") if name in options}
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options or None, **own)


def apply_fused_kernels(model: nn.Module, args: TrainingArguments) -> None:
    """Replace layers by Liger's fused ones where the arguments ask for it."""
    if not args.use_liger_kernel:
        return
    try:
        from liger_kernel.transformers import _apply_liger_kernel_to_instance
    except ImportError as error:
        raise ImportError(
            "use_liger_kernel=True needs the package liger-kernel (pip install liger-kernel) and a GPU."
        ) from error
    _apply_liger_kernel_to_instance(model=bare_model(model), **(args.liger_kernel_config or {}))


def align_special_tokens(model: nn.Module, processing_class: Any) -> None:
    """Let the model's configuration name the special tokens the tokenizer has."""
    tokenizer = getattr(processing_class, "tokenizer", processing_class)
    config = getattr(model, "config", None)
    if config is None or not hasattr(tokenizer, "pad_token_id") or not hasattr(config, "get_text_config"):
        return
    config, generation = config.get_text_config(), getattr(model, "generation_config", None)
    changed: dict[str, int] = {}
    for name in ("eos_token_id", "bos_token_id", "pad_token_id"):
        token = getattr(tokenizer, name, None)
        if token is None:
            continue
        in_config, in_generation = _as_list(config, name), _as_list(generation, name)
        if token in in_config and (generation is None or token in in_generation):
            continue
        changed[name] = token
        several = name == "eos_token_id"  # any of several may end a text, so none is dropped
        keeps_list = several and isinstance(getattr(config, name, None), list)
        setattr(config, name, _first(token, in_config) if keeps_list else token)
        if generation is not None:
            setattr(generation, name, _first(token, in_generation) if several else token)
    if changed:
        logger.warning(
            "Special tokens of the tokenizer were written into the model's configuration: %s.", changed
        )


def _as_list(holder: Any, name: str) -> list[Any]:
    value = getattr(holder, name, None)
    return value if isinstance(value, list) else [value]


def _first(token: int, others: list[Any]) -> list[Any]:
    return [token, *(other for other in others if other is not None and other != token)]
