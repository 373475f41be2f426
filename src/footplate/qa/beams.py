"""From the beams of a question-answering model to answers: the best span of text, or no answer."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from footplate.qa import candidates as pool
from footplate.qa.candidates import Entry, Spans
from footplate.qa.tables import Array

PARTS = ("start_top_log_probs", "start_top_index", "end_top_log_probs", "end_top_index", "cls_logits")
NO_SPAN = Entry("", -1e-6, -1e-6, -2e-6, (-1, -1))  # the answer if no beam is a span of the context


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
    """The answer to every example by its id and, with version 2, the score of no answer.

    Args:
        examples: Rows with id and context: a `datasets.Dataset`, a list of dictionaries, or columns.
        features: The predicted features, with the columns that `postprocess_qa_predictions` reads.
        predictions: Log probabilities and indices of the best starts, the same for the ends of each start,
            and the logit for no answer: five arrays of one row per feature.
        version_2_with_negative: Whether a question may have no answer.
        n_best_size: Answers to keep per example.
        max_answer_length: The longest answer, in tokens.
        start_n_top: Beams that the model keeps for the start.
        end_n_top: Beams that the model keeps for the end of each start.
        output_dir: Folder for predictions.json, nbest_predictions.json, null_odds.json; None writes no files.
        prefix: The prefix of the names of these files.
        log_level: At logging.INFO or below, the paths of the files are logged.
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

    found = []
    for rows in pool.chunks_of(len(starts), num_cells):
        spans = Spans(
            np.repeat(starts[rows, :start_n_top], end_n_top, axis=1).astype(np.int64),
            ends[rows, :num_cells].astype(np.int64),
            np.repeat(start_log_probs[rows, :start_n_top], end_n_top, axis=1),
            end_log_probs[rows, :num_cells],
        )
        found.append(pool.pick_spans(spans, rows, questions, n_best_size, max_answer_length))

    answers, described = {}, {}
    for identity, entries in pool.read_best(found, questions, n_best_size):
        # without an answer, the file names the scores logits, as the API's script does
        names = ("start_log_prob", "end_log_prob") if entries else ("start_logit", "end_logit")
        entries = entries or [NO_SPAN]
        answers[identity] = entries[0].text
        if output_dir is not None:
            described[identity] = pool.describe(entries, names)
    null_odds = _find_null_odds(questions, cls_logits) if version_2_with_negative else None
    if output_dir is not None:
        pool.save_answers(output_dir, prefix, log_level, answers, described, null_odds)
    return answers, null_odds


def _find_null_odds(questions: pool.Questions, cls_logits: Array) -> dict[Any, float]:
    """For each example the lowest logit for no answer of its features; 0 if it has no features."""
    lowest = np.full(len(questions.ids), np.inf)
    np.minimum.at(lowest, questions.owners, cls_logits.reshape(-1).astype(np.float64))
    has_features = np.isin(np.arange(len(lowest)), questions.owners)
    return dict(zip(questions.ids, np.where(has_features, lowest, 0.0).tolist(), strict=True))
