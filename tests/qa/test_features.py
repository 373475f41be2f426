from __future__ import annotations

import random
from typing import Any

import pytest
from datasets import Dataset

from footplate.qa.features import build_qa_features, find_answer
from questions import build_tokenizer, make_questions


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return build_tokenizer()


def texts_between(examples: list[Any], features: dict[str, list[Any]]) -> list[tuple[str, str | None]]:
    """What each feature points to, beside the example that it is of."""
    contexts = {example["id"]: example["context"] for example in examples}
    found = []
    names = ("example_id", "offset_mapping", "start_positions", "end_positions")
    rows = zip(*(features[name] for name in names), strict=True)
    for identity, offsets, first, last in rows:
        begin, end = offsets[first], offsets[last]
        found.append((identity, None if begin is None else contexts[identity][begin[0] : end[1]]))
    return found


@pytest.mark.parametrize("side", ["right", "left"])
def test_positions_point_to_the_answer_in_each_feature_that_holds_it(tokenizer, side):
    examples = make_questions(20, seed=0, unanswerable=0.3)
    tokenizer.padding_side = side
    features = build_qa_features(Dataset.from_list(examples)[:], tokenizer, max_length=24, doc_stride=6)
    tokenizer.padding_side = "right"
    answers = {example["id"]: example["answers"]["text"] for example in examples}
    found = texts_between(examples, features)
    assert len(found) > len(examples), "some contexts are cut in two"
    for identity, text in found:
        assert text is None or [text] == answers[identity]
    answered = {identity for identity, text in found if text is not None}
    assert answered == {identity for identity, texts in answers.items() if texts}


def test_features_cover_the_context_and_nothing_else(tokenizer):
    examples = make_questions(10, seed=1)
    features = build_qa_features(Dataset.from_list(examples)[:], tokenizer, max_length=24, doc_stride=6)
    for example in examples:
        rows = [row for row, owner in enumerate(features["example_id"]) if owner == example["id"]]
        covered = {
            place
            for row in rows
            for offset in features["offset_mapping"][row]
            if offset is not None
            for place in range(*offset)
        }
        assert covered == {place for place, letter in enumerate(example["context"]) if letter != " "}
    assert {len(row) for row in features["input_ids"]} == {24}


def test_without_answers_there_are_no_positions(tokenizer):
    columns = Dataset.from_list(make_questions(3, seed=0)).remove_columns("answers")
    features = columns.map(
        build_qa_features,
        batched=True,
        remove_columns=columns.column_names,
        fn_kwargs={"tokenizer": tokenizer, "max_length": 32, "doc_stride": 8, "pad_to_max_length": False},
    )
    assert "start_positions" not in features.column_names
    assert len({len(row) for row in features["input_ids"]}) > 1


def test_an_answer_is_found_as_by_looking_at_every_token():
    rng = random.Random(0)
    for _ in range(300):
        offsets: list[Any] = [None] * rng.randrange(1, 4)
        position = rng.randrange(0, 5)
        for _ in range(rng.randrange(1, 8)):
            width = rng.randrange(1, 4)
            offsets.append((position, position + width))
            position += width + rng.randrange(0, 2)
        offsets.append(None)
        begin = rng.randrange(0, position)
        end = begin + rng.randrange(1, 6)
        inside = [place for place, offset in enumerate(offsets) if offset is not None]
        is_here = offsets[inside[0]][0] <= begin and end <= offsets[inside[-1]][1]
        first = max((place for place in inside if offsets[place][0] <= begin), default=None)
        last = min((place for place in inside if offsets[place][1] >= end), default=None)
        expected = (first, max(first, last)) if is_here else None
        assert find_answer(offsets, {"text": ["x" * (end - begin)], "answer_start": [begin]}) == expected


def test_a_slow_tokenizer_is_refused():
    with pytest.raises(ValueError, match="object does not give the characters of its tokens"):
        build_qa_features({}, object())
