"""The formatters for models that predict tokens: tags, words, generated text, answer spans."""

from __future__ import annotations

import re
from typing import Any

import torch

from footplate.batch import IGNORED_LABEL, labels_of
from footplate.samples.batch import Row, SampleBatch, is_integer, make_row

LANGUAGE_MODEL = re.compile(r"CausalLM|LMHead|MaskedLM|ConditionalGeneration|Seq2SeqLM")
NO_ANSWER = "(no answer)"
MAX_ANSWER_TOKENS = 30


def has_tags(batch: SampleBatch) -> bool:
    """Whether each token has a class."""
    main, labels = batch.scores, batch.labels
    if main is None or main.ndim != 3:
        return False
    if labels is None:  # if the config does not confirm it, these may be hidden states
        return batch.entry("input_ids") is not None and main.shape[2] == batch.setting("num_labels")
    return is_integer(labels) and bool(labels.shape == main.shape[:2])


def format_tags(batch: SampleBatch) -> list[Row]:
    """Each token with its tag; a wrong tag has an exclamation mark."""
    ids, labels = batch.entry("input_ids"), batch.labels
    guesses = batch.answers[0].argmax(-1)
    rows = []
    for index, guessed in enumerate(guesses):
        counted = batch.is_attended(index) if labels is None else labels[index] != IGNORED_LABEL
        positions = counted.nonzero().flatten()
        tokens = batch.reader.tokens(ids[index][counted]) if ids is not None else positions.tolist()
        tags = [batch.label_name(tag) for tag in guessed[counted].tolist()]
        right = guessed if labels is None else labels[index]
        wanted = [batch.label_name(tag) for tag in right[counted].tolist()]
        marks = ["" if tag == other else "!" for tag, other in zip(tags, wanted, strict=True)]
        target = None if labels is None else _beside(tokens, wanted, [""] * len(tags))
        row = {"input": batch.input_text(index), "target": target, "prediction": _beside(tokens, tags, marks)}
        rows.append(row if labels is None else {**row, "correct": not any(marks)})
    return rows


def _beside(tokens: list[Any], tags: list[str], marks: list[str]) -> str:
    return " ".join(f"{token}/{tag}{mark}" for token, tag, mark in zip(tokens, tags, marks, strict=True))


def has_words(batch: SampleBatch) -> bool:
    """Whether each position has a score for every word of the vocabulary."""
    main, labels = batch.scores, batch.labels
    if main is None or main.ndim != 3 or "CTC" in batch.model_name:
        return False
    if labels is not None and not _fits_positions(labels, main):
        return False
    is_known = main.shape[2] in (batch.setting("vocab_size"), batch.reader.vocabulary_size)
    is_tagger = main.shape[2] == batch.setting("num_labels") and "TokenClassification" in batch.model_name
    return not is_tagger and (is_known or LANGUAGE_MODEL.search(batch.model_name) is not None)


def format_words(batch: SampleBatch) -> list[Row]:
    """The most likely word at each position with a label, given the correct words before it."""
    ids = batch.entry("input_ids")
    labels = batch.labels if batch.labels is not None else ids
    guesses = batch.answers[0].argmax(-1)[:, -labels.shape[1] :]  # learned prompts add positions in front
    is_shifted = _predicts_next(batch, labels)
    if is_shifted:
        guesses = torch.cat([torch.full_like(guesses[:, :1], IGNORED_LABEL), guesses[:, :-1]], dim=1)
    rows = []
    for index, (guessed, wanted) in enumerate(zip(guesses, labels, strict=True)):
        counted = wanted != IGNORED_LABEL
        if is_shifted:
            counted = counted & batch.is_attended(index)
            counted[0] = False  # there is no token before the first to predict it from
        hits = int((guessed == wanted)[counted].sum())
        row = {
            "input": _prompt(batch, index, counted, is_shifted),
            "target": batch.reader.text(wanted[counted]),
            "prediction": batch.reader.text(guessed[counted]),
            "hits": f"{hits}/{int(counted.sum())}",
        }
        rows.append(row)
    return rows


def _predicts_next(batch: SampleBatch, labels: torch.Tensor) -> bool:
    """Whether the prediction at a position is for the token after it."""
    ids = batch.entry("input_ids")
    if batch.setting("is_encoder_decoder") or not is_integer(ids) or ids.shape != labels.shape:
        return False
    # labels equal to the inputs can only be predicted from the tokens before; masked or shifted labels differ
    counted = labels != IGNORED_LABEL
    return "MaskedLM" not in batch.model_name and bool((ids == labels)[counted].all())


def _prompt(batch: SampleBatch, row: int, counted: torch.Tensor, is_shifted: bool) -> Any:
    """What the model was given: the part before the answer if there is one, else all of it."""
    if not is_shifted:  # a masked model predicts the mask, a special token: show it
        is_masked = batch.setting("is_encoder_decoder") is not True
        return batch.input_text(row, with_special=is_masked)
    first = int(counted.int().argmax())
    prompt = batch.entry("input_ids")[row][:first][batch.is_attended(row)[:first]]
    return batch.reader.text(prompt) if first > 1 else batch.input_text(row)


def is_generated(batch: SampleBatch) -> bool:
    """Whether the answers are token ids and not scores."""
    first = next(iter(batch.answers), None)
    return is_integer(first) and first.ndim == 2


def format_generated(batch: SampleBatch) -> list[Row]:
    """The text that the model generated."""
    rows = []
    whole = batch.entry("labels")
    continues = is_integer(whole) and _predicts_next(batch, whole)  # its prompt ends where the labels begin
    for index, ids in enumerate(batch.answers[0]):
        counted = whole[index] != IGNORED_LABEL if continues else None
        shown = batch.input_text(index) if counted is None else _prompt(batch, index, counted, True)
        target = None if batch.labels is None else batch.reader.text(batch.labels[index])
        rows.append(make_row(shown, target, batch.reader.text(ids)))
    return rows


def has_spans(batch: SampleBatch) -> bool:
    """Whether each token has two scores: the answer starts here, the answer ends here."""
    ids, answers = batch.entry("input_ids"), batch.answers
    if not is_integer(ids) or len(answers) < 2 or any(answer.shape != ids.shape for answer in answers[:2]):
        return False
    is_named = "QuestionAnswering" in batch.model_name or batch.entry("start_positions") is not None
    return is_named and all(answer.is_floating_point() for answer in answers[:2])


def format_spans(batch: SampleBatch) -> list[Row]:
    """The question, the passage, the right answer and the predicted one."""
    starts, ends = (answer.float() for answer in batch.answers[:2])
    wanted = labels_of(batch.inputs, ("start_positions", "end_positions"))
    rows = []
    for index, ids in enumerate(batch.entry("input_ids")):
        attended = batch.is_attended(index)
        question, context = _split_pair(batch, index, attended)
        span = best_span(starts[index], ends[index], attended)
        row = {"input": question, "context": context} if context else {"input": question}
        target = None
        if isinstance(wanted, tuple):
            target = _span_text(batch, ids, (int(wanted[0][index]), int(wanted[1][index])))
        answer = make_row(question, target, _span_text(batch, ids, span))
        rows.append({**row, **answer})
    return rows


def best_span(starts: torch.Tensor, ends: torch.Tensor, attended: torch.Tensor) -> tuple[int, int]:
    """First and last token of the most likely answer, which has 1 to MAX_ANSWER_TOKENS tokens."""
    scores = starts[:, None] + ends[None, :]
    allowed = torch.ones_like(scores, dtype=torch.bool).triu().tril(MAX_ANSWER_TOKENS - 1)
    allowed &= attended[:, None] & attended[None, :]
    position = int(scores.masked_fill(~allowed, float("-inf")).argmax())
    return position // len(ends), position % len(ends)


def _split_pair(batch: SampleBatch, row: int, attended: torch.Tensor) -> tuple[Any, str]:
    """Question and passage of a row, split by segment or separator; without either, all is the question."""
    ids = batch.entry("input_ids")[row][attended]
    segments = batch.entry("token_type_ids")
    separator = getattr(batch.reader.tokenizer, "sep_token_id", None)
    if segments is not None and bool((segments[row] == 1).any()):
        start = int((segments[row][attended] == 1).int().argmax())
    elif separator is not None and bool((ids == separator).any()):
        start = int((ids == separator).int().argmax()) + 1
    else:
        return batch.reader.text(ids), ""
    return batch.reader.text(ids[:start]), batch.reader.text(ids[start:])


def _span_text(batch: SampleBatch, ids: torch.Tensor, span: tuple[int, int]) -> str:
    first, last = span
    is_outside = span == (0, 0) or not 0 <= first <= last or first >= len(ids)  # token 0 means: no answer
    return NO_ANSWER if is_outside else batch.reader.text(ids[first : last + 1])


def _fits_positions(labels: Any, scores: torch.Tensor) -> bool:
    return is_integer(labels) and bool(labels.ndim == 2 and labels.shape[1] <= scores.shape[1])
