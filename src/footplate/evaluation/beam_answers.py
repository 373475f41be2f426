"""From the beams of a question-answering model to answers."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from footplate.evaluation import candidates as pool
from footplate.evaluation.candidates import Entry, Spans
from footplate.evaluation.tables import read_token_table

PARTS = ("start_top_log_probs", "start_top_index", "end_top_log_probs", "end_top_index", "cls_logits")
NO_SPAN = Entry("", -1e-6, -1e-6, -2e-6, (-1, -1))  # stands in where no beam is an answer


def postprocess_qa_predictions_with_beam_search(
    examples: Any,
    features: Any,
    predictions: Any,
    version_2_with_negative: bool = False,
    n_best_size: int = 20,
    max_answer_length: int = 30,
    start_n_top: int = 5,
    end_n_top: int = 5,
    output_dir: str | None = None,
    prefix: str | None = None,
    log_level: int | None = logging.WARNING,
) -> tuple[dict[Any, str], dict[Any, float] | None]:
    """The answer to every example by its id and, with version 2, how much speaks for there being none.

    Args:
        examples: Rows with id and context: a `datasets.Dataset`, a list of dictionaries, or columns.
        features: What was predicted on, with example_id and offset_mapping, as for one pair of logits.
        predictions: Log probabilities and indices of the best starts, the same for the ends of each start,
            and the logit for no answer: five arrays of one row per feature.
        version_2_with_negative: Whether a question may have no answer.
        n_best_size: Answers to keep per example.
        max_answer_length: The longest answer, in tokens.
        start_n_top: Beams that the model keeps for the start.
        end_n_top: Beams that it keeps for the end of each start.
        output_dir: Where predictions.json, nbest_predictions.json and null_odds.json go; None writes none.
        prefix: What the names of these files begin with.
        log_level: From logging.INFO down, the files are named in the log.
    """
    sizes = {"start_n_top": start_n_top, "end_n_top": end_n_top}
    pool.check_sizes(n_best_size=n_best_size, max_answer_length=max_answer_length, **sizes)
    beams = pool.read_predictions(predictions, PARTS, features)
    num_cells = start_n_top * end_n_top
    for name, array, width in zip(PARTS, beams, (start_n_top,) * 2 + (num_cells,) * 2, strict=False):
        if array.ndim != 2 or array.shape[1] < width:
            raise ValueError(
                f"{name} has the shape {array.shape}, but start_n_top={start_n_top} and "
                f"end_n_top={end_n_top} need {width} columns. Give both as the model's config has them."
            )
    start_log_probs, starts, end_log_probs, ends, cls_logits = beams
    questions = pool.read_questions(examples, features, version_2_with_negative)
    table = read_token_table(features)

    found = []
    for rows in pool.chunks_of(len(starts), num_cells):
        spans = Spans(
            np.repeat(starts[rows, :start_n_top], end_n_top, axis=1).astype(np.int64),
            ends[rows, :num_cells].astype(np.int64),
            np.repeat(start_log_probs[rows, :start_n_top], end_n_top, axis=1),
            end_log_probs[rows, :num_cells],
        )
        picked = pool.pick_spans(spans, rows, table, questions.owners, n_best_size, max_answer_length)
        found.append(picked)
    best, bounds = pool.rank(found, len(questions.ids), n_best_size)

    answers, described = {}, {}
    for place, (identity, context) in enumerate(zip(questions.ids, questions.contexts, strict=True)):
        entries = pool.read_entries(best, slice(*bounds[place : place + 2]), context)
        names = ("start_log_prob", "end_log_prob") if entries else ("start_logit", "end_logit")
        entries = entries or [NO_SPAN]
        answers[identity] = entries[0].text
        if output_dir is not None:
            described[identity] = pool.describe(entries, names)
    null_odds = _find_null_odds(questions, cls_logits) if version_2_with_negative else None
    if output_dir is not None:
        files: dict[str, Any] = {"predictions": answers, "nbest_predictions": described}
        files |= {} if null_odds is None else {"null_odds": null_odds}
        pool.save_answers(output_dir, prefix, log_level, files)
    return answers, null_odds


def _find_null_odds(questions: pool.Questions, cls_logits: pool.Array) -> dict[Any, float]:
    """Per example the lowest logit for no answer that a feature gives; 0 where nothing was read."""
    lowest = np.full(len(questions.ids), np.inf)
    np.minimum.at(lowest, questions.owners, cls_logits.reshape(-1).astype(np.float64))
    has_features = np.isin(np.arange(len(lowest)), questions.owners)
    return dict(zip(questions.ids, np.where(has_features, lowest, 0.0).tolist(), strict=True))
