"""Contrastive search: likely tokens that do not repeat what the text says already."""

from __future__ import annotations

from typing import Any

import torch


def search_contrastively(model: Any, tokens: torch.Tensor, num_new: int, k: int, penalty: float) -> Any:
    """A text that goes on by tokens that are likely and whose meaning is new.

    Args:
        model: A language model of transformers.
        tokens: One row, the beginning.
        num_new: How many tokens to add at most.
        k: How many of the likeliest tokens to choose from.
        penalty: The weight of being like an earlier token, from 0 to 1; the rest is that of being likely.
    """
    ends = model.generation_config.eos_token_id
    ends = {ends} if isinstance(ends, int) else set(ends or ())
    output = model(tokens, output_hidden_states=True)
    scores = output.logits[0, -1]
    for _ in range(num_new):
        chances, choices = scores.float().softmax(dim=-1).topk(min(k, scores.shape[-1]))
        rows = torch.cat([tokens.expand(len(choices), -1), choices[:, None]], dim=1)
        output = model(rows, output_hidden_states=True)
        meanings = torch.nn.functional.normalize(output.hidden_states[-1].float(), dim=-1)
        likeness = (meanings[:, :-1] @ meanings[:, -1:].transpose(1, 2)).amax(dim=(1, 2))
        best = int(((1 - penalty) * chances - penalty * likeness).argmax())
        tokens, scores = rows[best : best + 1], output.logits[best, -1]
        if int(choices[best]) in ends:
            break
    return tokens
