"""From start and end logits to answers: the best span of text, or no answer."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from footplate.qa import candidates as pool
from footplate.qa.candidates import Candidates, Entry, Spans
from footplate.qa.tables import Array

NO_SPAN = Entry("empty", 0.0, 0.0, 0.0, (-1, -1))  # the answer if a context has no span to choose


def postprocess_qa_predictions(
    examples: Any,
    features: Any,
    predictions: Any,
    version_2_with_negative: bool = False,
    n_best_size: int = 20,
    max_answer_length: int = 30,
    null_score_diff_threshold: float = 0.0,
    output_dir: str | None = None,
    prefix: str | None = None,
    log_level: int | None = logging.WARNING,
) -> dict[Any, str]:
    """The answer to every example, by its id, as text of its context.

    Args:
        examples: Rows with id and context: a `datasets.Dataset`, a list of dictionaries, or columns.
        features: The predicted features, with example_id and offset_mapping (None outside the context), and
            token_is_max_context if only tokens with the most context may start an answer.
        predictions: Start logits and end logits, one row per feature.
        version_2_with_negative: Whether a question may have no answer; "" says so.
        n_best_size: Start and end tokens to combine per feature, and answers to keep per example.
        max_answer_length: The longest answer, in tokens.
        null_score_diff_threshold: How much better no answer must score than the best one to be preferred.
        output_dir: Folder for predictions.json, nbest_predictions.json, null_odds.json; None writes no files.
        prefix: The prefix of the names of these files.
        log_level: At logging.INFO or below, the paths of the files are logged.
    """
    pool.check_sizes(n_best_size=n_best_size, max_answer_length=max_answer_length)
    start, end = pool.read_predictions(predictions, ("start_logits", "end_logits"), features)
    if start.ndim != 2 or start.shape != end.shape:
        raise ValueError(f"start_logits {start.shape} and end_logits {end.shape} must be 2-D, of one shape.")
    questions = pool.read_questions(examples, features, version_2_with_negative)

    found = []
    for rows in pool.chunks_of(len(start), min(n_best_size, start.shape[1]) ** 2):
        spans = combine_best(start[rows], end[rows], n_best_size)
        found.append(pool.pick_spans(spans, rows, questions, n_best_size, max_answer_length))
    null = find_null(start, end, questions.owners)
    found += [null] if version_2_with_negative else []
    null_of_example = dict(zip(null.example.tolist(), pool.read_entries(null), strict=True))

    answers: dict[Any, str] = {}
    null_odds: dict[Any, float] | None = {} if version_2_with_negative else None
    described: dict[Any, Any] = {}
    for place, (identity, entries) in enumerate(pool.read_best(found, questions, n_best_size)):
        if null_odds is not None:
            chosen = _choose_or_decline(entries, null_of_example.get(place), null_score_diff_threshold)
            answers[identity], null_odds[identity] = chosen
        else:
            answers[identity] = _choose(entries)
        if output_dir is not None:
            described[identity] = pool.describe(entries, ("start_logit", "end_logit"))
    if output_dir is not None:
        pool.save_answers(output_dir, prefix, log_level, answers, described, null_odds)
    return answers


def combine_best(start: Array, end: Array, n_best_size: int) -> Spans:
    """Each of the best start tokens with each of the best end tokens, in the order of their logits."""
    first = np.argsort(start, axis=1)[:, : -n_best_size - 1 : -1]
    last = np.argsort(end, axis=1)[:, : -n_best_size - 1 : -1]
    count = first.shape[1]
    start_score = np.take_along_axis(start, first, axis=1)
    end_score = np.take_along_axis(end, last, axis=1)
    return Spans(
        np.repeat(first, count, axis=1),
        np.tile(last, count),
        np.repeat(start_score, count, axis=1),
        np.tile(end_score, count),
    )


def find_null(start: Array, end: Array, owners: Array) -> Candidates:
    """No answer, for each example: the lowest score that one of its features gives to its first token."""
    score = pool.add_scores(start[:, 0], end[:, 0])
    # the answer may be in any of the features, so the one that is least sure of no answer decides
    order = np.lexsort((score, owners))
    example, firsts = np.unique(owners[order], return_index=True)
    feature = order[firsts]
    nothing = np.zeros(len(feature), dtype=np.int64)
    return Candidates(example, nothing, nothing, start[feature, 0], end[feature, 0], score[feature])


def _choose(entries: list[Entry]) -> str:
    """The best text, if every question has an answer."""
    if not entries or (len(entries) == 1 and not entries[0].text):
        entries.insert(0, NO_SPAN)
    return entries[0].text


def _choose_or_decline(entries: list[Entry], null: Entry | None, threshold: float) -> tuple[str, float]:
    """The best text or "" for no answer, and by how much no answer scores higher."""
    if null is not None and all(entry.span != (0, 0) for entry in entries):
        entries.append(null)  # its score is too low to be among the best, but its odds are needed
    if not any(entry.text for entry in entries):
        entries.insert(0, NO_SPAN)
    if null is None:  # no feature of this example was predicted
        return "", 0.0
    best = next(entry for entry in entries if entry.text)
    with np.errstate(invalid="ignore", over="ignore"):
        odds = null.score - best.start_score - best.end_score
    return ("" if odds > threshold else best.text), float(odds)
