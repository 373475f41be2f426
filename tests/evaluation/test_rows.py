"""Columns of evaluated rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from datasets import Dataset

from footplate.evaluation.rows import RowColumns

ROWS = [{"id": f"q{index}", "length": index * 10, "answers": {"text": [str(index)]}} for index in range(5)]


@pytest.mark.parametrize("dataset", [ROWS, Dataset.from_list(ROWS)], ids=["list", "table"])
def test_columns_come_in_the_order_of_evaluation(dataset):
    columns = RowColumns(dataset, np.array([3, 1, 4]))
    assert list(columns["id"]) == ["q3", "q1", "q4"]
    assert columns["length"].tolist() == [30, 10, 40]
    assert columns["answers"][0] == {"text": ["3"]}
    assert sorted(columns) == ["answers", "id", "length"]
    assert len(columns) == 3


def test_a_name_that_is_no_column_is_answered_with_those_that_are():
    with pytest.raises(KeyError, match=r"'idd' is not a column.*'id'"):
        RowColumns(ROWS, np.array([0]))["idd"]


def test_rows_without_names_have_no_columns():
    assert list(RowColumns([(1, 2), (3, 4)], np.array([0, 1]))) == []


def test_only_the_column_that_is_asked_for_is_read():
    class Counting(list):
        reads = 0

        def __getitem__(self, index):
            Counting.reads += 1
            return super().__getitem__(index)

    columns = RowColumns(Counting(ROWS), np.arange(5))
    assert Counting.reads == 0
    columns["id"]
    assert Counting.reads == 6  # each row, and one for the names


def test_a_column_of_a_table_is_read_at_once_and_as_it_is_stored(monkeypatch):
    table = Dataset.from_list(ROWS).with_format("torch")
    reads, read = [], Dataset._getitem
    monkeypatch.setattr(Dataset, "_getitem", lambda self, key: reads.append(key) or read(self, key))
    columns = RowColumns(table, np.array([4, 0, 2]))
    assert columns["length"].tolist() == [40, 0, 20]
    assert columns["answers"][1] == {"text": ["0"]}
    assert not any(isinstance(key, int) for key in reads)


def test_a_transform_adds_its_names():
    table = Dataset.from_list(ROWS).with_transform(lambda rows: {"double": [2 * n for n in rows["length"]]})
    columns = RowColumns(table, np.array([1, 3]))
    assert columns["double"].tolist() == [20, 60]
    assert list(columns["id"]) == ["q1", "q3"]


def test_tensors_of_one_number_become_an_array():
    rows = [{"labels": torch.tensor(float(index)), "x": torch.ones(2)} for index in range(3)]
    columns = RowColumns(rows, np.array([2, 0]))
    assert columns["labels"].tolist() == [2.0, 0.0]
    assert torch.equal(columns["x"][0], torch.ones(2))
