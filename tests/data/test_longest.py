"""The longest rows are found by the cheapest way that the data allows, in a bounded time."""

from __future__ import annotations

import datetime
import time
import tracemalloc

import numpy as np
import pytest
import torch
from datasets import Dataset as Table
from torch.utils.data import ConcatDataset, Subset

from footplate.data.longest import find_fullest, find_longest, measure_row

ROWS = [{"input_ids": [1] * (9 if index == 17 else 3), "note": "x" * index} for index in range(20)]


class Unread:
    """A dataset that may not be read, but for its table."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        time.sleep(0.02)
        return self.rows[index]


def test_only_what_the_model_takes_is_counted():
    assert find_longest(ROWS, 1, names=["input_ids"]).indices == [17]
    assert find_longest(ROWS, 2).indices == [17, 19]  # 9 and 17 letters, 3 and 19 letters


def test_a_column_of_lengths_counts_instead():
    rows = [{**row, "length": index == 4} for index, row in enumerate(ROWS)]
    assert find_longest(rows, 1, "length").indices == [4]


def test_of_equally_long_rows_the_first_come_first():
    found = find_longest(ROWS, 3, names=["input_ids"])
    assert (found.indices, found.length, found.is_sure) == ([17, 0, 1], 9, True)


def test_a_table_and_parts_of_it_are_not_read_row_by_row():
    table = Table.from_list(ROWS)
    assert find_longest(table, 1, "length", ["input_ids"], seconds=0.0).indices == [17]
    part = Subset(ConcatDataset([table, table]), [3, 37, 4])
    assert find_longest(part, 1, "length", ["input_ids"], seconds=0.0).indices == [1]


def test_reading_ends_with_the_time():
    start = time.monotonic()
    found = find_longest(Unread(ROWS * 50), 2, names=["input_ids"], seconds=0.1)
    assert time.monotonic() - start < 0.5
    assert 1 <= found.num_measured < 20
    assert not found.is_sure


class Many:
    """More rows than a list of their numbers could hold in the time."""

    def __len__(self):
        return 10_000_000

    def __getitem__(self, index):
        return {"input_ids": [1] * (1 + index % 7)}


def test_the_time_counts_from_the_beginning_however_many_rows_there_are():
    start = time.monotonic()
    found = find_longest(Many(), 2, names=["input_ids"], seconds=0.01)
    assert time.monotonic() - start < 0.2
    assert found.length == 7


def test_every_row_is_measured_once_where_there_is_time():
    for total in (1, 2, 3, 10, 89, 100):
        rows = [{"input_ids": [1] * (number * 7 % 13)} for number in range(total)]
        found = find_longest(rows, total, names=["input_ids"])
        expected = sorted(range(total), key=lambda row: (-len(rows[row]["input_ids"]), row))
        assert (found.indices, found.is_sure) == (expected, True)
        assert find_longest(rows, 2, names=["input_ids"]).indices == expected[:2]


def test_a_table_that_does_not_say_how_long_its_rows_are_is_read_no_longer_than_others():
    table = Table.from_list([{"x": float(index)} for index in range(50)])
    found = find_longest(table, 1, names=["x"], seconds=0.0)
    assert found.num_measured == 1


def test_lengths_of_a_large_table_take_little_memory():
    table = Table.from_dict({"length": np.arange(200_000) % 1000})
    tracemalloc.start()
    found = find_longest(table, 3, "length")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found.indices, found.length) == ([999, 1999, 2999], 999)
    assert most < 60 * len(table)


def test_rows_of_any_kind_are_measured():
    assert measure_row((torch.zeros(2, 3), [1, 2], "abc", 7)) == 6 + 2 + 3 + 1


def test_the_fullest_batch_counts_padding():
    assert find_fullest([5, 1, 1, 1], [[0], [1, 2, 3], [0, 1]]) == [0, 1]


def test_no_rows_have_no_longest():
    assert find_longest([], 3).indices == []


@pytest.mark.parametrize(
    "value", ["5 cm", None, [1], {"a": 1}, float("nan"), b"x", datetime.date(2000, 1, 1)], ids=str
)
def test_a_column_of_lengths_that_are_no_numbers_counts_for_nothing(value, recwarn):
    rows = [{**row, "length": value} for row in ROWS]
    assert find_longest(rows, 1, "length", ["input_ids"]).indices == [17]
    if not isinstance(value, (float, datetime.date)):  # Arrow takes these for numbers
        assert find_longest(Table.from_list(rows), 1, "length", ["input_ids"]).indices == [17]
    find_longest(Table.from_list(rows), 1, "length", ["input_ids"])
    assert not recwarn.list


def test_the_shortest_rows_are_named_where_some_are_shorter():
    for data in (ROWS, Table.from_list(ROWS)):
        assert find_longest(data, 2, names=["input_ids"]).shortest == [0, 1]
    assert find_longest(ROWS[16:18], 3, names=["input_ids"]).shortest == [0, 0, 0]
    assert find_longest(ROWS[:5], 2, names=["input_ids"]).shortest == []
