"""What a language model writes: it goes on from some tokens, always with the most likely one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def write_on(
    model: Any, tokenizer: Any, tokens: Sequence[int], max_new_tokens: int, ends: Sequence[int] = ()
) -> str:
    """The text that follows.

    Args:
        model: A language model of transformers.
        tokenizer: Its tokenizer.
        tokens: Where to go on from; what the model has no places for is cut off at the beginning.
        max_new_tokens: How many tokens to add at most.
        ends: Tokens that end the text, beside the end of a sentence.
    """
    places = getattr(model.config, "max_position_embeddings", None) or 0
    if places > 0:
        tokens = tokens[-max(places - max_new_tokens, places // 2) :]
    eos = tokenizer.eos_token_id
    stops = [*([] if eos is None else [eos]), *ends]
    beginning = torch.tensor([list(tokens)], device=model.device)
    with torch.no_grad():
        made = model.generate(
            input_ids=beginning,
            attention_mask=torch.ones_like(beginning),
            do_sample=False,
            max_new_tokens=min(max_new_tokens, places - len(tokens)) if places > 0 else max_new_tokens,
            pad_token_id=eos if tokenizer.pad_token_id is None else tokenizer.pad_token_id,
            eos_token_id=stops or None,
        )
    new = made[0, len(tokens) :].tolist()
    if new and new[-1] in ends:
        new.pop()
    # the whole is decoded: alone, the new tokens would lose the space before them
    start = tokenizer.decode(list(tokens), skip_special_tokens=True)
    return str(tokenizer.decode([*tokens, *new], skip_special_tokens=True)[len(start) :])
