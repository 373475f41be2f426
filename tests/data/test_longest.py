"""The longest rows are found by the cheapest way that the data allows, in a bounded time."""

from __future__ import annotations

import datetime
import threading
import time
import tracemalloc
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from datasets import Dataset as Table
from torch.utils.data import ConcatDataset, Subset

from footplate.data.longest import NotPlain, copy_rows, find_fullest, find_longest, measure_row, runs_no_code

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


class OwnSubset(Subset):
    """Rows with something done to them, as many write it."""


class OwnConcat(ConcatDataset):
    pass


class OwnTable(Table):
    pass


class PassesOn:
    """A dataset that lends what it does not have from a table."""

    def __init__(self, table):
        self.table = table

    def __getattr__(self, name):
        return getattr(self.table, name)


class Lazy(Mapping):
    """A row that does work when it is asked for an entry."""

    def __getitem__(self, name):
        raise AssertionError

    def __iter__(self):
        return iter(("input_ids",))

    def __len__(self):
        return 1


class OwnList(list):
    pass


def test_only_plain_tables_and_lists_run_no_code_of_the_users():
    table = Table.from_list(ROWS)
    plain = [ROWS, tuple(ROWS), table, table.with_format("torch"), Subset(ConcatDataset([table, ROWS]), [1])]
    assert all(map(runs_no_code, plain))
    own = table.select([1, 2])
    own.__class__ = OwnTable
    others = [OwnSubset(ROWS, [1]), OwnConcat([ROWS]), PassesOn(table), own, Unread(ROWS), [Lazy()]]
    others += [OwnList(ROWS), [{"input_ids": OwnList([1])}], table.with_transform(lambda rows: rows)]
    assert not any(map(runs_no_code, others))
    assert not any(runs_no_code(Subset(one, [0])) for one in others)


def test_rows_are_copied_without_what_they_are_a_part_of():
    whole = torch.arange(1_000_000)
    row = {"ids": whole[5:8], "more": [np.ones(2), {"a": (1, "x", {2})}], "day": datetime.date(2000, 1, 1)}
    copied = copy_rows([row])[0]
    assert copied["ids"].tolist() == [5, 6, 7]
    assert copied["ids"].untyped_storage().nbytes() == 24
    copied["ids"][0], copied["more"][0][0] = 9, 9
    copied["more"][1].pop("a")
    assert (whole[5], row["more"][0][0], row["more"][1]) == (5, 1.0, {"a": (1, "x", {2})})


def test_what_a_tokenizer_returned_is_copied():
    from transformers import BatchEncoding

    row = BatchEncoding({"input_ids": [1, 2]})
    copied = copy_rows(row)
    assert copied.pop("input_ids") == [1, 2]
    assert list(row) == ["input_ids"]


def test_a_row_with_something_that_only_its_own_code_can_copy_is_refused():
    slope = torch.ones(1, requires_grad=True)
    for value in (threading.Lock(), slope * 2, Lazy(), OwnList(), np.array([{}], dtype=object)):
        with pytest.raises(NotPlain):
            copy_rows({"value": value})
