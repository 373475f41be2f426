"""Rows are read and copied only where no code of the user's runs."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from datasets import Dataset as Table
from torch.utils.data import ConcatDataset, Subset

from footplate.data.plain_rows import NotPlain, copy_rows, runs_no_code

ROWS = [{"input_ids": [1] * (9 if index == 17 else 3), "note": "x" * index} for index in range(20)]


class Unread:
    """A dataset of the user's own."""

    def __getitem__(self, index):
        raise AssertionError


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
    others = [OwnSubset(ROWS, [1]), OwnConcat([ROWS]), PassesOn(table), own, Unread(), [Lazy()]]
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
