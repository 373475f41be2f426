"""Find the span with the highest score in the logits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def find_best_spans(start_logits: Array, end_logits: Array, max_tokens: int = 8) -> Array:
    """The first and last token of the span with the highest score in each row.

    Args:
        start_logits: Scores of the first token, one row per example; very low outside the context.
        end_logits: Scores of the last token, in the same shape.
        max_tokens: The longest span to consider.
    """
    num_rows, num_tokens = start_logits.shape
    scores = start_logits[:, :, None] + end_logits[:, None, :]
    length = np.arange(num_tokens)[None, :] - np.arange(num_tokens)[:, None] + 1
    scores = np.where((length >= 1) & (length <= max_tokens), scores, -np.inf)
    best = scores.reshape(num_rows, -1).argmax(axis=1)
    return np.stack([best // num_tokens, best % num_tokens], axis=1)
