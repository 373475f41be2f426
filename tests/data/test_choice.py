"""A fixed part of a dataset."""

from __future__ import annotations

import pytest
from datasets import Dataset
from torch.utils.data import IterableDataset

from footplate.data.choice import choose_rows, limit_rows


class Stream(IterableDataset):
    def __iter__(self):
        yield from range(100)


def test_the_same_seed_chooses_the_same_rows_and_another_seed_others():
    assert choose_rows(1000, 10, seed=1) == choose_rows(1000, 10, seed=1)
    assert choose_rows(1000, 10, seed=1) != choose_rows(1000, 10, seed=2)
    assert choose_rows(1000, 10, seed=1) == sorted(set(choose_rows(1000, 10, seed=1)))


@pytest.mark.parametrize("make", [list, lambda rows: Dataset.from_list(list(rows))], ids=["list", "table"])
def test_a_part_of_the_rows_stands_for_all(make):
    dataset = make({"n": index} for index in range(50))
    part, rows = limit_rows(dataset, 7, seed=3)
    assert [part[index]["n"] for index in range(len(part))] == rows == choose_rows(50, 7, seed=3)


@pytest.mark.parametrize("max_rows", [None, 50, 80])
def test_a_set_that_is_small_enough_stays_as_it_is(max_rows):
    dataset = list(range(50))
    assert limit_rows(dataset, max_rows, seed=0) == (dataset, None)


def test_of_a_stream_the_first_rows_are_given_each_time():
    part, rows = limit_rows(Stream(), 4, seed=0)
    assert rows is None
    assert list(part) == list(part) == [0, 1, 2, 3]
