"""Split the texts of a decoder into the prompt to generate from and the answer to compare with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from footplate.batch import IGNORED_LABEL
from footplate.comm import map_nested

# entries of a batch that describe the whole text, and would be wrong for its prompt
_OF_WHOLE_TEXT = ("position_ids", "cache_position", "shift_labels")


def cut_prompts(inputs: Mapping[str, Any], labels: Any, pad_token_id: int) -> dict[str, Any]:
    """A batch for a decoder-only model: the tokens before each row's first label, padded on the left."""
    token_ids = inputs.get("input_ids")
    if not isinstance(token_ids, torch.Tensor):  # embeddings or sound, which only the model can split
        return dict(inputs)
    is_prompt = _mask_of(inputs, token_ids) & ~_from_first_label(token_ids, labels)
    check_prompt(int(is_prompt.sum(dim=1).min()))  # host sync
    prompts = {name: value for name, value in inputs.items() if name not in _OF_WHOLE_TEXT}
    for name, value in prompts.items():
        if isinstance(value, torch.Tensor) and value.shape == token_ids.shape:  # one entry per token
            prompts[name] = _pack(value, is_prompt, pad_token_id if name == "input_ids" else 0, to_left=False)
    prompts["attention_mask"] = _pack(is_prompt.long(), is_prompt, 0, to_left=False)
    return prompts


def cut_answers(labels: torch.Tensor) -> torch.Tensor:
    """Each row's first answer, from its first label to the next -100, padded on the right."""
    counts = labels != IGNORED_LABEL
    ended = (counts.cumsum(dim=1) > 0) & ~counts
    return _pack(labels, counts & (ended.cumsum(dim=1) == 0), IGNORED_LABEL, to_left=True)


def count_prompt(input_ids: Any, labels: Any) -> int:
    """Tokens of a sample before its first label; all tokens if its labels are missing or a separate text."""
    if labels is None or len(labels) != len(input_ids):
        return len(input_ids)
    answer = np.flatnonzero(np.asarray(labels) != IGNORED_LABEL)
    return int(answer[0]) if len(answer) else len(input_ids)


def check_prompt(num_tokens: int, max_length: int | None = None) -> None:
    """Check that a prompt is not empty and leaves room for an answer."""
    if num_tokens == 0:
        raise ValueError(
            "A sample has no prompt to generate from: its labels begin with the first token. Set labels to "
            "-100 over the prompt, or set predict_with_generate=False."
        )
    if max_length is not None and num_tokens >= max_length:
        raise ValueError(
            f"max_length (generation_max_length)={max_length} counts the prompt too, and one of {num_tokens} "
            "tokens leaves no room for an answer. Raise generation_max_length, or leave it out and set "
            "max_new_tokens in generation_config."
        )


def drop_prompt(generated: torch.Tensor, prompts: torch.Tensor) -> torch.Tensor:
    """The generated tokens after the prompts; all of them if they do not begin with the prompts."""
    width = prompts.shape[1]
    repeated = prompts.repeat_interleave(max(1, len(generated) // len(prompts)), dim=0)
    begins_with_prompt = generated.shape[1] >= width and torch.equal(generated[:, :width], repeated)
    return generated[:, width:] if begins_with_prompt else generated


def free_decoder(inputs: Mapping[str, Any], labels: Any, pad_token_id: int) -> dict[str, Any]:
    """A batch for an encoder-decoder model, without decoder inputs that contain the answer or -100."""
    decoder_ids = inputs.get("decoder_input_ids")
    if not isinstance(decoder_ids, torch.Tensor):
        return dict(inputs)
    if isinstance(labels, torch.Tensor) and labels.shape == decoder_ids.shape:  # made from the labels
        hidden = ("decoder_input_ids", "decoder_attention_mask")
        return {name: value for name, value in inputs.items() if name not in hidden}
    decoder_ids = decoder_ids.masked_fill(decoder_ids == IGNORED_LABEL, pad_token_id)
    return {**inputs, "decoder_input_ids": decoder_ids}


def _mask_of(inputs: Mapping[str, Any], token_ids: torch.Tensor) -> torch.Tensor:
    mask = inputs.get("attention_mask")
    if isinstance(mask, torch.Tensor) and mask.shape == token_ids.shape:
        return mask.bool()
    return torch.ones_like(token_ids, dtype=torch.bool)


def _from_first_label(token_ids: torch.Tensor, labels: Any) -> torch.Tensor:
    if not isinstance(labels, torch.Tensor) or labels.shape != token_ids.shape:
        return torch.zeros_like(token_ids, dtype=torch.bool)
    return (labels != IGNORED_LABEL).cumsum(dim=1) > 0


def _pack(values: torch.Tensor, keep: torch.Tensor, fill: int, to_left: bool) -> torch.Tensor:
    """The entries to keep of each row, side by side and in order; as wide as the longest row needs."""
    width = int(keep.sum(dim=1).max()) if keep.numel() else 0  # host sync
    order = (~keep if to_left else keep).to(torch.int8).argsort(dim=1, stable=True)
    order = order[:, :width] if to_left else order[:, order.shape[1] - width :]
    return values.gather(1, order).masked_fill(~keep.gather(1, order), fill)


def pad_to_length(tensor: torch.Tensor, length: int, pad_token_id: int) -> torch.Tensor:
    """The rows, padded on the right to `length`."""
    missing = length - tensor.shape[-1]
    return nn.functional.pad(tensor, (0, missing), value=pad_token_id) if missing > 0 else tensor


def fill_ignored(arrays: Any, pad_token_id: int) -> None:
    """Replace -100 by the pad token, in place: a tokenizer cannot decode -100."""

    def fill(leaf: Any) -> None:
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "i":
            leaf[leaf == IGNORED_LABEL] = pad_token_id

    map_nested(fill, arrays)
