"""From start and end logits to answers: the best spans of text, or none."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import numpy.typing as npt

from footplate.evaluation import candidates as pool
from footplate.evaluation.candidates import Candidates, Entry, Spans
from footplate.evaluation.tables import read_token_table

Array = npt.NDArray[Any]
NO_SPAN = Entry("empty", 0.0, 0.0, 0.0, (-1, -1))  # stands in where a context offers nothing to choose


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
        features: What was predicted on, with example_id and offset_mapping (None outside the context), and
            token_is_max_context where only tokens with the most context may start an answer.
        predictions: Start logits and end logits, one row per feature.
        version_2_with_negative: Whether a question may have no answer; "" says so.
        n_best_size: Start and end tokens to combine per feature, and answers to keep per example.
        max_answer_length: The longest answer, in tokens.
        null_score_diff_threshold: How much better no answer must score than the best one to be preferred.
        output_dir: Where predictions.json, nbest_predictions.json and null_odds.json go; None writes none.
        prefix: What the names of these files begin with.
        log_level: From logging.INFO down, the files are named in the log.
    """
    pool.check_sizes(n_best_size=n_best_size, max_answer_length=max_answer_length)
    start, end = pool.read_predictions(predictions, ("start_logits", "end_logits"), features)
    if start.ndim != 2 or start.shape != end.shape:
        raise ValueError(f"start_logits {start.shape} and end_logits {end.shape} must be two equal tables.")
    questions = pool.read_questions(examples, features, version_2_with_negative)
    table = read_token_table(features)
    num_examples, num_cells = len(questions.ids), min(n_best_size, start.shape[1]) ** 2

    found = []
    for rows in pool.chunks_of(len(start), num_cells):
        spans = combine_best(start[rows], end[rows], n_best_size)
        picked = pool.pick_spans(spans, rows, table, questions.owners, n_best_size, max_answer_length)
        found.append(picked)
    null = find_null(start, end, questions.owners)
    found += [null] if version_2_with_negative else []
    best, bounds = pool.rank(found, num_examples, n_best_size)
    null_of_example = dict(zip(null.example.tolist(), pool.read_entries(null), strict=True))

    answers, all_entries, null_odds = {}, {}, {}
    for place, (identity, context) in enumerate(zip(questions.ids, questions.contexts, strict=True)):
        entries = pool.read_entries(best, slice(*bounds[place : place + 2]), context)
        if version_2_with_negative:
            chosen = _choose_or_decline(entries, null_of_example.get(place), null_score_diff_threshold)
            answers[identity], null_odds[identity] = chosen
        else:
            answers[identity] = _choose(entries)
        all_entries[identity] = entries
    if output_dir is not None:
        described = {
            identity: pool.describe(entries, ("start_logit", "end_logit"))
            for identity, entries in all_entries.items()
        }
        files: dict[str, Any] = {"predictions": answers, "nbest_predictions": described}
        files |= {"null_odds": null_odds} if version_2_with_negative else {}
        pool.save_answers(output_dir, prefix, log_level, files)
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
    """What speaks for no answer: per example the lowest score that a feature gives to its first token."""
    score = pool.add_scores(start[:, 0], end[:, 0])
    order = np.lexsort((score, owners))  # all features of an example must agree, so the least sure one speaks
    example, firsts = np.unique(owners[order], return_index=True)
    feature = order[firsts]
    nothing = np.zeros(len(feature), dtype=np.int64)
    return Candidates(example, nothing, nothing, start[feature, 0], end[feature, 0], score[feature])


def _choose(entries: list[Entry]) -> str:
    """The best text, where every question has an answer."""
    if not entries or (len(entries) == 1 and not entries[0].text):
        entries.insert(0, NO_SPAN)
    return entries[0].text


def _choose_or_decline(entries: list[Entry], null: Entry | None, threshold: float) -> tuple[str, float]:
    """The best text or "", and how much more speaks for the latter."""
    if null is not None and all(entry.span != (0, 0) for entry in entries):
        entries.append(null)  # its score was too low to be among the best, but its odds are asked for
    if not any(entry.text for entry in entries):
        entries.insert(0, NO_SPAN)
    if null is None:  # nothing of this example was read
        return "", 0.0
    best = next(entry for entry in entries if entry.text)
    with np.errstate(invalid="ignore", over="ignore"):
        odds = null.score - best.start_score - best.end_score
    return ("" if odds > threshold else best.text), float(odds)
