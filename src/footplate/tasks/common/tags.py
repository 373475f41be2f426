"""Tags of words: from words to tokens, from tags to entities, and how right they are."""

from __future__ import annotations

import ast
import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from footplate.tasks.common.labels import sort_names
from footplate.tasks.common.problems import TaskError
from footplate.tasks.common.recipe import Row

logger = logging.getLogger(__name__)

IGNORED = -100  # a token that stands for no word, or not for its beginning


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


def learn_tags(rows: Any, column: str, known: list[str] | None) -> tuple[list[str], list[str]]:
    """All tags in the order of their numbers, and what numbers in the data mean, if it has numbers.

    Args:
        rows: The rows to learn from.
        column: The column of tags.
        known: The tags of a model that was trained for some, where nothing is learned.
    """
    feature = getattr((rows.features or {}).get(column), "feature", None)
    spelled = list(getattr(feature, "names", None) or [])
    if spelled or known:
        return spelled or known or [], spelled
    if column not in rows.column_names:
        raise TaskError("The tags are not known. Give rows with tags, or a model that was trained for them.")
    return sort_names({tag for row in rows for tag in words_of(row[column] or ()) if tag is not None}), []


def find_bad_tags(words: Sequence[Any], tags: Sequence[Any], names: Sequence[str] | None) -> str | None:
    """Why the tags of some words cannot be used; names are given if tags must be among them."""
    if len(words) != len(tags):
        return f"there are {len(words)} words but {len(tags)} tags"
    unknown = next((tag for tag in tags if names is not None and str(tag) not in names), None)
    return None if unknown is None else f"the tag {unknown!r} does not occur in the training rows"


def order_as_model(names: list[str], config: Any) -> list[str]:
    """Tags in the order that a model was trained for, if it was trained for just these."""
    known = config.label2id or {}
    if sorted(known) == sorted(names):
        return sorted(names, key=lambda name: int(known[name]))
    if any(not name.startswith("LABEL_") for name in known):
        logger.warning("The model knows other tags, %s: its last layer gets new ones.", sorted(known))
    return names


def spell_tags(value: Any, spelled: Sequence[str]) -> list[str]:
    """The tags of a cell, which may have numbers for them."""
    return [spelled[tag] if spelled else str(tag) for tag in words_of(value)]


def label_tokens(
    tokens: Any, tags: Sequence[Sequence[str]], names: Sequence[str], fills: bool
) -> list[list[int]]:
    """The numbers of tokens' tags for some rows.

    Args:
        tokens: Those of the rows, as a fast tokenizer gives them.
        tags: Those of the words of each row.
        names: All tags in the order of their numbers.
        fills: Whether all tokens of a word have a tag, or only the first.
    """
    numbers = {name: number for number, name in enumerate(names)}
    return [number_tokens(tokens.word_ids(row), given, numbers, fills) for row, given in enumerate(tags)]


def number_tokens(
    places: Sequence[int | None], tags: Sequence[str], numbers: Mapping[str, int], fills: bool
) -> list[int]:
    """The numbers of the tags of a row's tokens, from the word that each token stands for."""
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


def tags_of_words(tokens: Any, count: int, tags: Any, names: Sequence[str]) -> list[str]:
    """The tag of each word, by its first token; words that were cut off have none.

    Args:
        tokens: The words' tokens, as a fast tokenizer gives them.
        count: How many words there are.
        tags: The number of the tag of each token.
        names: Those of the tags.
    """
    first = first_tokens(tokens.word_ids(0))
    return [names[tags[first[place]]] if place in first else "O" for place in range(count)]


def name_tags(numbers: Any, labels: Any, names: Sequence[str]) -> list[list[str]]:
    """The names of tags where there are labels."""
    return [
        [names[number] for number, label in zip(row, mask, strict=True) if label != IGNORED]
        for row, mask in zip(numbers, labels, strict=True)
    ]


def measure_tags(numbers: Any, labels: Any, names: Sequence[str], by_type: bool) -> dict[str, float]:
    """Precision, recall and F1 of whole entities and the accuracy of tags.

    Args:
        numbers: Of the tags that were found.
        labels: Of those that are right; tokens without a tag are marked in them.
        names: Those of the tags.
        by_type: Measure each type of entity too.
    """
    from seqeval import metrics

    found, right = name_tags(numbers, labels, names), name_tags(labels, labels, names)
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


def describe_tags(words: Sequence[str], tags: Sequence[str], names: Sequence[str]) -> Row:
    """The entities with their words and type; if tags are no entities, all tags."""
    if any(name.startswith(("B-", "I-")) for name in names):
        return {"entities": find_entities(words, tags)}
    return {"words": list(words), "tags": list(tags)}


def find_entities(words: Sequence[str], tags: Sequence[str]) -> list[Row]:
    """The entities among words: type, text, first and last word."""
    from seqeval.metrics.sequence_labeling import get_entities

    between = "" if " " in words else " "  # where characters are the words, spaces are among them
    return [
        {"type": kind, "text": between.join(words[first : last + 1]), "words": [first, last]}
        for kind, first, last in get_entities(list(tags))
    ]
