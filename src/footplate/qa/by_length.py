"""Exact match and F1 of answers by the length of answer, question and context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from footplate.qa.scores import score_each, split_mixed, unit_of
from footplate.qa.tables import Array, has_column, read_columns

NO_ANSWER = "no answer"
# where each bucket begins, in words
BOUNDS = {"answer": (1, 2, 3, 5, 9), "question": (1, 6, 9, 12, 16), "context": (1, 100, 150, 200, 300)}
Bucket = tuple[str, int, float, float]  # its lengths, questions, exact match and F1 in per cent


def describe_answers(
    examples: Any, predictions: Any, references: Any, compute_metrics: Any
) -> tuple[str, dict[str, Any] | None]:
    """A note for the journal: the scores by length; None if these are no answers in the form of SQuAD.

    Args:
        examples: The questions with their contexts.
        predictions: `{"id", "prediction_text"}` for each question.
        references: `{"id", "answers"}` for each question.
        compute_metrics: What measures them; one of `build_squad_metrics` tells what F1 counts.
    """
    unit = unit_of(compute_metrics)
    ids, golds, exact, f1 = score_each(predictions, references, unit)
    if not ids:
        return "answers", None
    count = _count_mixed if unit == "mixed" else _count_words
    tables = {"answer": _by_answer(golds, exact, f1, count)}
    for name in ("question", "context"):
        if has_column(examples, name) and has_column(examples, "id"):
            buckets = _by_bounds(_lengths_of(examples, name, ids, count), BOUNDS[name], exact, f1)
            if len(buckets) > 1:  # a single one repeats the whole
                tables[name] = buckets
    means = {"exact_match": _per_cent(exact), "f1": _per_cent(f1)}
    return "answers", {"num_items": len(ids), **means, "tables": tables}


def _by_answer(
    golds: Sequence[Sequence[str]], exact: Array, f1: Array, count: Callable[[str], int]
) -> list[Bucket]:
    """By the length of the first right answer; questions without one are a bucket of their own."""
    lengths = np.array([count(texts[0]) if texts else 0 for texts in golds])
    has_answer = lengths > 0  # some sets give an empty text where there is no answer
    buckets = _by_bounds(lengths[has_answer], BOUNDS["answer"], exact[has_answer], f1[has_answer])
    if has_answer.all():
        return buckets
    return [*buckets, _bucket(NO_ANSWER, exact[~has_answer], f1[~has_answer])]


def _by_bounds(lengths: Array, bounds: Sequence[int], exact: Array, f1: Array) -> list[Bucket]:
    """One bucket for each stretch of lengths that occurs."""
    places = np.maximum(np.searchsorted(bounds, lengths, side="right") - 1, 0)
    return [
        _bucket(_label(bounds, place), exact[places == place], f1[places == place])
        for place in np.unique(places).tolist()
    ]


def _bucket(label: str, exact: Array, f1: Array) -> Bucket:
    return label, len(exact), _per_cent(exact), _per_cent(f1)


def _label(bounds: Sequence[int], place: int) -> str:
    if place == len(bounds) - 1:
        return f"{bounds[place]} or more"
    first, last = bounds[place], bounds[place + 1] - 1
    return str(first) if first == last else f"{first} to {last}"


def _per_cent(values: Array) -> float:
    return round(100.0 * float(values.mean()), 2)


def _lengths_of(examples: Any, name: str, ids: Sequence[Any], count: Callable[[str], int]) -> Array:
    """The words in a column, in the order of these ids; texts that several questions share count once."""
    identities, texts = read_columns(examples, ["id", name], "examples")
    counts = {text: count(text) for text in set(texts)}
    by_id = {identity: counts[text] for identity, text in zip(identities, texts, strict=True)}
    return np.array([by_id[identity] for identity in ids])


def _count_words(text: str) -> int:
    return len(text.split())


def _count_mixed(text: str) -> int:
    return len(split_mixed(text))
