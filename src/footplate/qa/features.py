"""From questions and contexts to features: rows of tokens with the position of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from footplate.qa.tables import Array


def build_qa_features(
    examples: Any,
    tokenizer: Any,
    max_length: int = 384,
    doc_stride: int = 128,
    pad_to_max_length: bool = True,
    question_column: str = "question",
    context_column: str = "context",
    answer_column: str = "answers",
) -> dict[str, list[Any]]:
    """The features of some examples; a context that is too long gives several that overlap.

    Serves training and evaluation: besides what the model takes, each feature has example_id, offset_mapping
    with None outside the context and, if there are answers, the first and last token of the first answer. A
    feature without the whole answer points to its own first token, as for a question without an answer.

    Args:
        examples: Columns by name, as `Dataset.map(..., batched=True)` passes them: id, question, context.
        tokenizer: A fast tokenizer of `transformers`.
        max_length: Tokens of a feature.
        doc_stride: Tokens that two features of the same context share.
        pad_to_max_length: Whether to pad rows to `max_length`; if not, the data collator must pad.
        question_column: Column of the questions.
        context_column: Column of the contexts.
        answer_column: Column of the answers, as {"text": [...], "answer_start": [...]}.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            f"{type(tokenizer).__name__} does not give the characters of its tokens. Use the fast "
            "tokenizer of this model."
        )
    questions = [question.lstrip() for question in examples[question_column]]
    contexts = list(examples[context_column])
    question_first = tokenizer.padding_side == "right"  # if it pads on the left, the question comes last
    features = tokenizer(
        *((questions, contexts) if question_first else (contexts, questions)),
        truncation="only_second" if question_first else "only_first",
        max_length=max_length,
        stride=doc_stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        padding="max_length" if pad_to_max_length else False,
    )
    owners = features["overflow_to_sample_mapping"]
    columns = {name: values for name, values in features.items() if name != "overflow_to_sample_mapping"}
    columns["example_id"] = [examples["id"][owner] for owner in owners]
    has_answers = answer_column in examples
    if has_answers:
        columns["start_positions"], columns["end_positions"] = [], []
    for row, owner in enumerate(owners):
        parts = features.sequence_ids(row)
        is_context = [part == int(question_first) for part in parts]
        offsets = columns["offset_mapping"][row]
        kept = [offset if inside else None for offset, inside in zip(offsets, is_context, strict=True)]
        columns["offset_mapping"][row] = kept
        if has_answers:
            nothing = find_first_token(columns["input_ids"][row], tokenizer)
            first, last = find_answer(kept, examples[answer_column][owner]) or (nothing, nothing)
            columns["start_positions"].append(first)
            columns["end_positions"].append(last)
    return columns


def find_first_token(input_ids: list[int], tokenizer: Any) -> int:
    """The position that means no answer: of the classification token, else of the start token, else 0."""
    for token in (tokenizer.cls_token_id, tokenizer.bos_token_id):
        if token is not None and token in input_ids:
            return input_ids.index(token)
    return 0


def find_answer(offsets: list[tuple[int, int] | None], answers: Mapping[str, Any]) -> tuple[int, int] | None:
    """The first and last token of the first answer; None if there is no answer or not all of it is here.

    Args:
        offsets: The characters of each token, None outside the context.
        answers: "text" and "answer_start", in characters of the context.
    """
    tokens = [place for place, offset in enumerate(offsets) if offset is not None]
    if not tokens or not len(answers["answer_start"]):
        return None
    begin = int(answers["answer_start"][0])
    end = begin + len(answers["text"][0])
    spans: Array = np.array([offsets[place] for place in tokens])
    if begin < spans[0, 0] or end > spans[-1, 1]:
        return None
    first = int(np.searchsorted(spans[:, 0], begin, side="right")) - 1
    last = int(np.searchsorted(spans[:, 1], end, side="left"))
    return tokens[first], tokens[max(first, last)]
