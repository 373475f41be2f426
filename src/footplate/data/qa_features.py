"""From questions and contexts to features: rows of tokens that know where their answer stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


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
    with None outside the context and, where there are answers, the first and last token of the first one. A
    feature that does not hold it whole points to its first token, as for a question without an answer.

    Args:
        examples: Columns by name, as `Dataset.map(..., batched=True)` hands them over: id, question, context.
        tokenizer: A fast tokenizer of `transformers`.
        max_length: Tokens of a feature.
        doc_stride: Tokens that two neighbours have in common.
        pad_to_max_length: Fill rows up; else the data collator must.
        question_column: Where the questions are.
        context_column: Where the contexts are.
        answer_column: Where the answers are, as {"text": [...], "answer_start": [...]}.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            f"{type(tokenizer).__name__} cannot say where its tokens stand in a text. Use the fast tokenizer "
            "of this model."
        )
    questions = [question.lstrip() for question in examples[question_column]]
    contexts = list(examples[context_column])
    asks_first = tokenizer.padding_side == "right"  # a model that reads from the right has the question last
    features = tokenizer(
        *((questions, contexts) if asks_first else (contexts, questions)),
        truncation="only_second" if asks_first else "only_first",
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
        is_context = [part == int(asks_first) for part in parts]
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
    """The token that stands for no answer: the classifying one, else the one that begins, else the first."""
    for token in (tokenizer.cls_token_id, tokenizer.bos_token_id):
        if token is not None and token in input_ids:
            return input_ids.index(token)
    return 0


def find_answer(offsets: list[tuple[int, int] | None], answers: Mapping[str, Any]) -> tuple[int, int] | None:
    """The first and last token of the first answer; None where there is none or it is not all here.

    Args:
        offsets: The characters of each token, None for those that are not of the context.
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
