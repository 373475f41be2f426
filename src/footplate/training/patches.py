"""Change a model for a run: embedding noise, recomputation, fused kernels, special tokens."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

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
    handle = activate_neftune(bare, alpha)
    try:
        yield
    finally:
        deactivate_neftune(bare, handle)


def activate_neftune(
    model: nn.Module, neftune_noise_alpha: float, accelerator: Any = None
) -> RemovableHandle:
    """Add noise to the input embeddings from now on, in training mode; returns what ends it.

    Args:
        model: A model with `get_input_embeddings`, wrapped or not.
        neftune_noise_alpha: How much noise.
        accelerator: Not needed; the API has it.
    """
    bare: Any = bare_model(model)
    embeddings: Any = bare.get_input_embeddings()
    embeddings.neftune_noise_alpha = neftune_noise_alpha
    handle: RemovableHandle = embeddings.register_forward_hook(neftune_post_forward_hook)
    return handle


def deactivate_neftune(model: nn.Module, hook_handle: RemovableHandle, accelerator: Any = None) -> None:
    """End what `activate_neftune` began.

    Args:
        model: The same model.
        hook_handle: What `activate_neftune` returned.
        accelerator: Not needed; the API has it.
    """
    hook_handle.remove()
    bare: Any = bare_model(model)
    if hasattr(bare.get_input_embeddings(), "neftune_noise_alpha"):
        del bare.get_input_embeddings().neftune_noise_alpha


def neftune_post_forward_hook(module: Any, input: Any, output: torch.Tensor) -> torch.Tensor:
    """Noise for the output of an embedding layer, for `register_forward_hook`.

    Args:
        module: The layer; its `neftune_noise_alpha` says how much noise.
        input: Not used.
        output: The embeddings.
    """
    if not module.training:
        return output
    # computed in float32 as in the original: with Python floats the last bit would differ
    bound = float(module.neftune_noise_alpha / torch.sqrt(torch.tensor(output.size(1) * output.size(2))))
    return output + torch.zeros_like(output).uniform_(-bound, bound)


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
