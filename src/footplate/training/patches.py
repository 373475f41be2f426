"""Change a model for a run: embedding noise, recomputation, fused kernels, special tokens."""

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

_RECOMPUTE = ("activation_checkpointing", "gradient_checkpointing")


@contextmanager
def embedding_noise(model: nn.Module, alpha: float | None) -> Iterator[None]:
    """Add NEFTune noise to the input embeddings while training; no noise if `alpha` is None."""
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
        # computed in float32 as in the original: with Python floats the last bit would differ
        bound = float(alpha / torch.sqrt(torch.tensor(embedded.size(1) * embedded.size(2))))
        return embedded + torch.zeros_like(embedded).uniform_(-bound, bound)

    return add_noise


def enable_recompute(model: Any, args: TrainingArguments) -> None:
    """Turn on the recomputation of activations if the arguments ask for it."""
    # scripts may set the older name after the arguments were made
    if not (args.activation_checkpointing or args.gradient_checkpointing):
        return
    # the newer name first: models of transformers have both and warn of the older one
    name = next((name for name in _RECOMPUTE if hasattr(model, f"{name}_enable")), None)
    if name is None:
        raise ValueError(
            f"activation_checkpointing=True needs a model with activation_checkpointing_enable() or "
            f"gradient_checkpointing_enable(); {type(model).__name__} has neither. Add one of these methods, "
            "or set activation_checkpointing=False."
        )
    options = dict(args.activation_checkpointing_kwargs or args.gradient_checkpointing_kwargs or {})
    own = {key: options.pop(key) for key in ("every_n_layers", "offload") if key in options}
    getattr(model, f"{name}_enable")(**{f"{name}_kwargs": options or None}, **own)


def apply_fused_kernels(model: nn.Module, args: TrainingArguments) -> None:
    """Replace layers by Liger's fused ones if the arguments ask for it."""
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
    """Write the special tokens of the tokenizer into the model's configuration."""
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
        may_be_several = name == "eos_token_id"  # any of them may end a text, so all are kept
        keeps_list = may_be_several and isinstance(getattr(config, name, None), list)
        setattr(config, name, _first(token, in_config) if keeps_list else token)
        if generation is not None:
            setattr(generation, name, _first(token, in_generation) if may_be_several else token)
    if changed:
        logger.warning(
            "Special tokens of the tokenizer were written into the model's configuration: %s.", changed
        )


def _as_list(holder: Any, name: str) -> list[Any]:
    value = getattr(holder, name, None)
    return value if isinstance(value, list) else [value]


def _first(token: int, others: list[Any]) -> list[Any]:
    return [token, *(other for other in others if other is not None and other != token)]
