"""From logits to answers, and how good the answers are."""

from __future__ import annotations

import re
import string
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def find_best_spans(start_logits: Array, end_logits: Array, max_tokens: int = 8) -> Array:
    """The first and last token of the likeliest span of each row.

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


def score_answers(predictions: list[str], answers: list[str]) -> dict[str, float]:
    """Mean exact match and mean F1, from 0 to 1, under the names that metrics use.

    Args:
        predictions: What was answered.
        answers: What should have been answered, in the same order.
    """
    pairs = list(zip(predictions, answers, strict=True))
    return {
        "exact_match": float(np.mean([exact_match(prediction, answer) for prediction, answer in pairs])),
        "f1": float(np.mean([f1(prediction, answer) for prediction, answer in pairs])),
    }


def exact_match(prediction: str, answer: str) -> float:
    """1 if both say the same in the same words, else 0."""
    return float(split_words(prediction) == split_words(answer))


def f1(prediction: str, answer: str) -> float:
    """Harmonic mean of how much of the prediction is right and how much of the answer is found, by words."""
    predicted, expected = split_words(prediction), split_words(answer)
    if not predicted or not expected:
        return float(predicted == expected)
    num_common = (Counter(predicted) & Counter(expected)).total()
    return 2 * num_common / (len(predicted) + len(expected))


def split_words(text: str) -> list[str]:
    """The words that count: in lower case, without punctuation and articles."""
    bare = text.lower().translate(str.maketrans("", "", string.punctuation))
    return [word for word in bare.split() if not re.fullmatch("a|an|the", word)]
