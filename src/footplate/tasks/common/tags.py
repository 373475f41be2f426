"""Tags of words: from words to tokens, from tags to entities, and how right they are."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from footplate.tasks.common.recipe import Row

IGNORED = -100  # a token that stands for no word, or not for its beginning
Tags = Sequence[Sequence[str]]


def words_of(value: Any) -> list[Any]:
    """The words or tags of a cell: a list, a list written as text, or words with spaces between them."""
    if not isinstance(value, str):
        return list(value)
    text = value.strip()
    if text.startswith("[") and text.endswith("]"):
        try:
            return list(ast.literal_eval(text))
        except (ValueError, SyntaxError):  # a sentence that is in brackets
            pass
    return text.split()


def number_tokens(
    places: Sequence[int | None], tags: Sequence[str], numbers: Mapping[str, int], fills: bool
) -> list[int]:
    """The numbers of tokens' tags.

    Args:
        places: The word that each token stands for.
        tags: Those of the words.
        numbers: Their numbers.
        fills: Whether all tokens of a word have a tag, or only the first.
    """
    found = []
    for place, before in zip(places, [None, *places[:-1]], strict=True):
        if place is None or (place == before and not fills):
            found.append(IGNORED)
            continue
        tag = tags[place]
        if place == before and tag.startswith("B-") and f"I-{tag[2:]}" in numbers:
            tag = f"I-{tag[2:]}"  # only the first token begins an entity
        found.append(numbers[tag])
    return found


def first_tokens(places: Sequence[int | None]) -> dict[int, int]:
    """The first token of each word, from the word that each token stands for."""
    found: dict[int, int] = {}
    for token, place in enumerate(places):
        if place is not None:
            found.setdefault(place, token)
    return found


def measure_tags(right: Tags, found: Tags, by_type: bool) -> dict[str, float]:
    """Precision, recall and F1 of whole entities and the accuracy of tags; of each type too, if asked for."""
    from seqeval import metrics

    warnings.filterwarnings("ignore", message=".*seems not to be NE tag")  # parts of speech are none
    scores = {"precision": metrics.precision_score, "recall": metrics.recall_score, "f1": metrics.f1_score}
    overall = {name: float(score(right, found, zero_division=0)) for name, score in scores.items()}
    overall["accuracy"] = float(metrics.accuracy_score(right, found))
    if not by_type:
        return overall
    results = {f"overall_{name}": value for name, value in overall.items()}
    keys = {"precision": "precision", "recall": "recall", "f1": "f1-score", "number": "support"}
    for kind, values in metrics.classification_report(
        right, found, output_dict=True, zero_division=0
    ).items():
        if not kind.endswith(" avg"):
            results.update({f"{kind}_{key}": float(values[name]) for key, name in keys.items()})
    return results


def find_entities(words: Sequence[str], tags: Sequence[str]) -> list[Row]:
    """The entities among words: type, text, first and last word."""
    from seqeval.metrics.sequence_labeling import get_entities

    between = "" if " " in words else " "  # where characters are the words, spaces are among them
    return [
        {"type": kind, "text": between.join(words[first : last + 1]), "words": [first, last]}
        for kind, first, last in get_entities(list(tags))
    ]
