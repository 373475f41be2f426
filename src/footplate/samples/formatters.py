"""The formatters for the rows of each task, and the choice between them."""

from __future__ import annotations

from collections.abc import Callable

import torch

from footplate.samples.batch import Row, SampleBatch, is_float, is_integer, make_row
from footplate.samples.text import describe
from footplate.samples.token_formatters import (
    format_generated,
    format_spans,
    format_tags,
    format_words,
    has_spans,
    has_tags,
    has_words,
    is_generated,
)

Formatter = Callable[[SampleBatch], "list[Row]"]

NONE_OF_THEM = "(none)"


def pick_formatter(batch: SampleBatch) -> Formatter:
    """The formatter that fits the batch, the predictions and the model's config."""
    return next((formatter for fits, formatter in FORMATTERS if fits(batch)), format_plain)


def format_plain(batch: SampleBatch) -> list[Row]:
    """Rows of any task: a few numbers as they are, many numbers as their shape."""
    rows = []
    for index in range(batch.num_rows):
        _, labels, predictions = batch.row(index)
        target = None if labels is None else describe(labels)
        rows.append({"input": batch.input_text(index), "target": target, "prediction": describe(predictions)})
    return rows


def has_values(batch: SampleBatch) -> bool:
    """Whether this is a regression: each row has one value, or values shaped like its labels."""
    main = batch.scores
    if main is None or main.ndim not in (1, 2):
        return False
    if main.ndim == 1 or main.shape[1] == 1 or batch.setting("problem_type") == "regression":
        return True
    labels = batch.labels
    return is_float(labels) and labels.shape == main.shape and not _is_yes_or_no(labels)


def format_values(batch: SampleBatch) -> list[Row]:
    """The values, without `correct`: two floats are rarely equal."""
    main = batch.answers[0].float()
    main = main[:, 0] if main.ndim == 2 and main.shape[1] == 1 else main
    targets = None if batch.labels is None else torch.as_tensor(batch.labels).reshape(main.shape)
    return [
        {
            "input": batch.input_text(index),
            "target": None if targets is None else describe(targets[index]),
            "prediction": describe(value),
        }
        for index, value in enumerate(main)
    ]


def has_flags(batch: SampleBatch) -> bool:
    """Whether several classes may be true at once: one yes or no for each."""
    main, labels = batch.scores, batch.labels
    if main is None or main.ndim != 2:
        return False
    if batch.setting("problem_type") == "multi_label_classification":
        return True
    return isinstance(labels, torch.Tensor) and labels.shape == main.shape and _is_yes_or_no(labels)


def format_flags(batch: SampleBatch) -> list[Row]:
    """The names of all classes that are true."""

    def names(flags: torch.Tensor) -> str:
        found = [batch.label_name(index) for index in flags.nonzero().flatten().tolist()]
        return ", ".join(found) or NONE_OF_THEM

    rows = []
    for index, scores in enumerate(batch.answers[0]):
        target = None if batch.labels is None else names(batch.labels[index] > 0)
        rows.append(make_row(batch.input_text(index), target, names(scores > 0)))
    return rows


def has_classes(batch: SampleBatch) -> bool:
    """Whether one class out of several is predicted."""
    main, labels = batch.scores, batch.labels
    if main is None or main.ndim != 2:
        return False
    if labels is None:
        return len(batch.setting("id2label") or ()) == main.shape[1]
    return is_integer(labels) and labels.numel() == main.shape[0]


def format_classes(batch: SampleBatch) -> list[Row]:
    """The names of the classes, and the probability of the predicted one."""
    confidences, guesses = batch.answers[0].float().softmax(-1).max(-1)
    targets = None if batch.labels is None else batch.labels.flatten().tolist()
    rows = []
    for index, guess in enumerate(guesses.tolist()):
        target = None if targets is None else batch.label_name(targets[index])
        row = make_row(batch.input_text(index), target, batch.label_name(guess))
        rows.append({**row, "confidence": round(float(confidences[index]), 4)})
    return rows


def has_choices(batch: SampleBatch) -> bool:
    """Whether this is multiple choice: each row holds one text per choice."""
    main, ids = batch.scores, batch.entry("input_ids")
    return main is not None and is_integer(ids) and ids.ndim == 3 and main.shape == ids.shape[:2]


def format_choices(batch: SampleBatch) -> list[Row]:
    """The words that all choices begin with, and the rest of the right and of the chosen one."""
    rows = []
    guesses = batch.answers[0].argmax(-1).tolist()
    for index, guess in enumerate(guesses):
        texts = [batch.reader.text(ids) for ids in batch.entry("input_ids")[index]]
        words = [text.split() for text in texts]
        num_shared = next(
            (place for place, column in enumerate(zip(*words, strict=False)) if len(set(column)) > 1),
            min(map(len, words)),
        )
        choices = [f"{number}: {' '.join(text[num_shared:])}" for number, text in enumerate(words)]
        target = None if batch.labels is None else choices[int(batch.labels[index])]
        rows.append(make_row(" ".join(words[0][:num_shared]), target, choices[guess]))
    return rows


def _is_yes_or_no(labels: torch.Tensor) -> bool:
    return bool(((labels == 0) | (labels == 1)).all())  # host sync


# the first that fits is used: checks that look at the input ids come before those by the shape of the scores
FORMATTERS: tuple[tuple[Callable[[SampleBatch], bool], Formatter], ...] = (
    (has_spans, format_spans),
    (has_choices, format_choices),
    (is_generated, format_generated),
    (has_words, format_words),
    (has_tags, format_tags),
    (has_values, format_values),
    (has_flags, format_flags),
    (has_classes, format_classes),
)
