"""The best spans of each example, picked from many candidates at once."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from footplate.qa import tables
from footplate.qa.tables import Array, TokenTable, answer_texts, count_rows, has_column, read_columns

MAX_CELLS = 1 << 21  # candidates compared at once: more would take memory and save no time
FILE_NAMES = ("predictions", "nbest_predictions", "null_odds")
logger = logging.getLogger(__name__)


class Candidates(NamedTuple):
    """Spans of characters with their scores, in the order in which they were found."""

    example: Array
    begin: Array
    end: Array
    start_score: Array
    end_score: Array
    score: Array


class Entry(NamedTuple):
    """One candidate as text, with its scores in the precision they were computed in."""

    text: str
    start_score: Any
    end_score: Any
    score: Any
    span: tuple[int, int]


class Spans(NamedTuple):
    """First and last tokens of spans, with their scores: one row per feature, one column per span."""

    first: Array
    last: Array
    start_score: Array
    end_score: Array


class Questions(NamedTuple):
    """Ids and contexts of the examples; for each feature, the place of its example and its tokens."""

    ids: list[Any]
    contexts: list[str]
    owners: Array
    tokens: TokenTable


def read_questions(examples: Any, features: Any, version_2_with_negative: bool) -> Questions:
    """What is to be answered; raise if examples and features do not belong together."""
    ids, contexts = read_columns(examples, ["id", "context"], "examples")
    (owner_ids,) = read_columns(features, ["example_id"], "features")
    places = {identity: place for place, identity in enumerate(ids)}
    unknown = [identity for identity in owner_ids if identity not in places]
    if unknown:
        raise ValueError(
            f"{len(unknown)} of {len(owner_ids)} features belong to no example: example_id "
            f"{unknown[0]!r} is not among the ids of examples. Pass the examples (eval_examples) that "
            "these features were made from."
        )
    owners = np.array([places[identity] for identity in owner_ids], dtype=np.int64)
    num_without = len(ids) - len(np.unique(owners))
    if num_without:
        logger.warning("%d of %d examples have no feature: they get no real answer.", num_without, len(ids))
    if not version_2_with_negative:
        check_answerable(examples)
    return Questions(ids, contexts, owners, tables.read_token_table(features))


def check_answerable(examples: Any) -> None:
    """Refuse examples if only some have an answer; if none has one, this is a test set without answers."""
    if not has_column(examples, "answers"):
        return
    (answers,) = read_columns(examples, ["answers"], "examples")
    num_without = sum(not answer_texts(answer) for answer in answers)
    if 0 < num_without < len(answers):
        raise ValueError(
            f"{num_without} of {len(answers)} examples have no answer, but version_2_with_negative=False "
            "always gives one. Set version_2_with_negative=True, or leave these examples out."
        )


def read_predictions(predictions: Any, names: Sequence[str], features: Any) -> list[Array]:
    """The arrays of a prediction, one row per feature; a score that is not a number becomes the lowest."""
    if isinstance(predictions, Mapping):
        predictions = tuple(predictions.values())
    if not isinstance(predictions, (tuple, list)) or len(predictions) != len(names):
        given = len(predictions) if isinstance(predictions, (tuple, list)) else type(predictions).__name__
        raise ValueError(
            f"predictions must be the {len(names)} arrays {', '.join(names)}; got {given}. Use ignore_keys "
            "to leave out the model's other outputs."
        )
    arrays = [np.asarray(part) for part in predictions]
    num_features = count_rows(features)
    for name, array in zip(names, arrays, strict=True):
        if len(array) != num_features:
            raise ValueError(
                f"predictions hold {len(array)} rows of {name}, but there are {num_features} features. Pass "
                "the features that were predicted on, all of them and in their order."
            )
    num_broken = sum(int(np.isnan(array).sum()) for array in arrays if array.dtype.kind == "f")
    if num_broken:
        logger.warning("%d scores are not a number: they count as the lowest.", num_broken)
        arrays = [lowest_if_nan(array) for array in arrays]
    return arrays


def lowest_if_nan(scores: Array) -> Array:
    """The scores, with minus infinity in place of not-a-number."""
    if scores.dtype.kind != "f":
        return scores
    return np.where(np.isnan(scores), np.array(-np.inf, scores.dtype), scores)


def add_scores(left: Array, right: Array) -> Array:
    """Sums in the precision of the scores; the sum of opposite infinities is the lowest score."""
    with np.errstate(invalid="ignore", over="ignore"):
        return lowest_if_nan(left + right)


def pick_spans(
    spans: Spans, rows: slice, questions: Questions, n_best_size: int, max_answer_length: int
) -> Candidates:
    """The best spans of each feature in `rows` that are possible answers, best first; at a tie, in order."""
    row, table = np.arange(rows.start, rows.stop)[:, None], questions.tokens
    length = spans.last - spans.first + 1
    begin = table.begins[row, _within(spans.first, table)]
    end = table.ends[row, _within(spans.last, table)]
    is_answer = (begin >= 0) & (end >= 0) & (length >= 1) & (length <= max_answer_length)
    score = add_scores(spans.start_score, spans.end_score)
    order = np.argsort(np.where(is_answer, -score, np.nan), axis=1, kind="stable")[:, :n_best_size]
    kept = np.take_along_axis(is_answer, order, axis=1)
    parts = (begin, end, spans.start_score, spans.end_score, score)
    example = np.broadcast_to(questions.owners[row], order.shape)
    return Candidates(example[kept], *(np.take_along_axis(part, order, axis=1)[kept] for part in parts))


def _within(tokens: Array, table: TokenTable) -> Array:
    """Token indices; those out of range become the last column of the table, which is outside any context."""
    return np.where((tokens < 0) | (tokens >= table.num_tokens), table.num_tokens, tokens)


def chunks_of(num_rows: int, cells_per_row: int) -> Iterable[slice]:
    """Slices that cover all rows, each of about MAX_CELLS cells."""
    step = max(1, MAX_CELLS // max(1, cells_per_row))
    return (slice(start, min(start + step, num_rows)) for start in range(0, num_rows, step))


def rank(candidates: Sequence[Candidates], num_examples: int, n_best_size: int) -> tuple[Candidates, Array]:
    """The `n_best_size` best candidates of each example, best first, and where each example's begin."""
    joined = Candidates(*(np.concatenate(parts) for parts in zip(*candidates, strict=True)))
    order = np.lexsort((-joined.score, joined.example))
    counts = np.bincount(joined.example, minlength=num_examples)
    place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    order = order[place < n_best_size]
    bounds = np.concatenate([[0], np.cumsum(np.minimum(counts, n_best_size))])
    return Candidates(*(part[order] for part in joined)), bounds


def read_best(
    candidates: Sequence[Candidates], questions: Questions, n_best_size: int
) -> Iterator[tuple[Any, list[Entry]]]:
    """The id of each example, and its best candidates as text, best first."""
    best, bounds = rank(candidates, len(questions.ids), n_best_size)
    for place, (identity, context) in enumerate(zip(questions.ids, questions.contexts, strict=True)):
        yield identity, read_entries(best, slice(*bounds[place : place + 2]), context)


def read_entries(best: Candidates, rows: slice = slice(None), context: str = "") -> list[Entry]:
    """Candidates as entries with their text."""
    begins, ends = best.begin[rows].tolist(), best.end[rows].tolist()
    texts = [context[begin:end] for begin, end in zip(begins, ends, strict=True)]
    scores = (best.start_score[rows], best.end_score[rows], best.score[rows])
    return list(map(Entry, texts, *scores, zip(begins, ends, strict=True)))


def describe(entries: list[Entry], names: tuple[str, str]) -> list[dict[str, Any]]:
    """Entries as nbest_predictions.json holds them: scores under `names`, text, probability."""
    shares = probabilities(np.array([entry.score for entry in entries]))
    return [
        {
            names[0]: float(entry.start_score),
            names[1]: float(entry.end_score),
            "text": entry.text,
            "probability": share,
        }
        for entry, share in zip(entries, shares, strict=True)
    ]


def probabilities(scores: Array) -> list[float]:
    """Softmax; if the best score is infinite, all candidates that reach it share the probability."""
    best = scores.max()
    weights = np.exp(scores - best) if np.isfinite(best) else (scores == best).astype(np.float64)
    return [float(share) for share in weights / weights.sum()]


def check_sizes(**sizes: int) -> None:
    """Refuse counts below one."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name}={size!r} gives no answer. Set it to 1 or more.")


def save_answers(
    output_dir: str, prefix: str | None, log_level: int | None, *contents: Mapping[Any, Any] | None
) -> None:
    """Write each dictionary to its file, None to no file; a reader never sees half a file."""
    if not os.path.isdir(output_dir):
        raise OSError(f"output_dir={output_dir!r} is not a directory. Make it first, or name another.")
    for name, content in zip(FILE_NAMES, contents, strict=True):
        if content is None:
            continue
        path = Path(output_dir, f"{name}.json" if prefix is None else f"{prefix}_{name}.json")
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        text = json.dumps(content, indent=4, ensure_ascii=False) + "\n"
        # UTF-8 cannot hold half a surrogate pair, which a tokenizer may give: write it as a JSON escape
        unfinished.write_text(text, encoding="utf-8", errors="backslashreplace")
        os.replace(unfinished, path)
        if log_level is not None and log_level <= logging.INFO:
            logger.info("Saved %s.", path)
