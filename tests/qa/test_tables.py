from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from datasets import Dataset, concatenate_datasets
from transformers import BatchEncoding

from footplate.qa.tables import answer_texts, count_rows, has_column, read_columns, read_token_table
from slow_answers import as_columns


def make_rows(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Offsets of ragged rows: none at all, no token, tokens without offset, and plain ones."""
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = [
        {"offset_mapping": None},
        {"offset_mapping": []},
        {"offset_mapping": [None, None]},
    ]
    while len(rows) < count:
        offsets = [[place, place + rng.randrange(1, 5)] for place in range(rng.randrange(1, 9))]
        rows.append({"offset_mapping": [None if rng.random() < 0.3 else offset for offset in offsets]})
    return rows


def look_up(rows: list[dict[str, Any]], row: int, token: int) -> tuple[int, int]:
    offsets = rows[row]["offset_mapping"] or []
    offset = offsets[token] if token < len(offsets) else None
    return (-1, -1) if offset is None else tuple(offset)


@pytest.mark.parametrize(
    "shape",
    [
        list,
        as_columns,
        Dataset.from_list,
        lambda rows: concatenate_datasets([Dataset.from_list(rows[:7]), Dataset.from_list(rows[7:])]),
        lambda rows: BatchEncoding(as_columns(rows)),
    ],
    ids=["list", "columns", "dataset", "two chunks", "batch encoding"],
)
def test_a_table_says_where_each_token_stands(shape):
    rows = make_rows(20)
    table = read_token_table(shape(rows))
    for row in range(len(rows)):
        found = list(zip(table.begins[row].tolist(), table.ends[row].tolist(), strict=True))
        assert found == [look_up(rows, row, token) for token in range(table.num_tokens + 1)]


@pytest.mark.parametrize("rows", [[], [{"offset_mapping": [None, None]}] * 3])
def test_a_table_without_any_offset_is_nowhere(rows):
    for features in (rows, Dataset.from_dict({"offset_mapping": [row["offset_mapping"] for row in rows]})):
        table = read_token_table(features)
        assert len(table.begins) == len(rows)
        assert (table.begins == -1).all()


def test_columns_are_read_from_rows_columns_and_datasets():
    rows = [{"id": number, "text": f"글 {number}"} for number in range(4)]
    for kind in (
        rows,
        as_columns(rows),
        Dataset.from_list(rows),
        Dataset.from_list(rows).with_format("torch"),
    ):
        assert read_columns(kind, ["text", "id"], "examples") == [[f"글 {n}" for n in range(4)], [0, 1, 2, 3]]
        assert has_column(kind, "id")
        assert not has_column(kind, "context")
        assert count_rows(kind) == 4
        with pytest.raises(ValueError, match=r"examples has no column 'context', only \['id', 'text'\]"):
            read_columns(kind, ["context"], "examples")


@pytest.mark.parametrize(
    "answers",
    [
        {"text": ["서울", "Seoul"], "answer_start": [0, 3]},
        [{"text": "서울", "answer_start": 0}, {"text": "Seoul", "answer_start": 3}],
        ["서울", "Seoul"],
        {"text": np.array(["서울", "Seoul"])},
    ],
)
def test_answers_are_read_in_the_forms_they_come_in(answers):
    assert answer_texts(answers) == ["서울", "Seoul"]


def test_no_answer_is_none_or_empty():
    assert answer_texts(None) == answer_texts([]) == answer_texts({"text": [], "answer_start": []}) == []
    assert answer_texts({"text": "one"}) == ["one"]
