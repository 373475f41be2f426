"""A pass over rows that knows their numbers: shares, distances, streams, collators that join rows."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import IterableDataset

from footplate.data.numbered_rows import RowReader, is_stream, spread_evenly

ROWS = [{"x": torch.tensor(float(i))} for i in range(11)]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(ROWS)


def stack(samples):
    return {"x": torch.stack([sample["x"] for sample in samples])}


def join_pairs(samples):
    """A collator that packs: all samples in one row."""
    return {"x": torch.stack([sample["x"] for sample in samples])[None]}


def read(dataset=ROWS, collate=stack, numbers=range(11), size=4, share=(0, 1), **settings):
    return list(RowReader(dataset, collate, numbers, size, settings, share))


@pytest.mark.parametrize("dataset", [ROWS, Stream()])
@pytest.mark.parametrize("workers", [0, 1])
def test_every_row_comes_once_with_its_number(dataset, workers):
    found = read(dataset, num_workers=workers)
    assert [rows.numbers for rows in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    assert [rows.batch["x"].tolist() for rows in found] == [rows.numbers for rows in found]


@pytest.mark.parametrize("dataset", [ROWS, Stream()])
def test_processes_share_the_batches(dataset):
    shares = [read(dataset, share=(rank, 2)) for rank in range(2)]
    assert [[rows.numbers[0] for rows in share] for share in shares] == [[0, 8], [4]]
    assert all(rows.batch["x"].tolist() == rows.numbers for share in shares for rows in share)


def test_a_sample_of_the_rows_lies_at_equal_distances():
    assert list(spread_evenly(11, 4)) == [0, 2, 5, 8]
    assert spread_evenly(11, 11) == spread_evenly(11, None) == spread_evenly(11, 20) == range(11)
    huge = spread_evenly(10**15, 10**9)  # none of these numbers is made before it is asked for
    assert huge[10**9 - 1] == 10**15 - 10**6
    with pytest.raises(IndexError):
        huge[10**9]
    found = read(numbers=spread_evenly(11, 4), size=3)
    assert [rows.batch["x"].tolist() for rows in found] == [[0, 2, 5], [8]]


def test_of_a_stream_the_first_rows_are_read_and_no_more():
    taken = []

    class Counted(IterableDataset):
        def __iter__(self):
            for row in ROWS:
                taken.append(row)
                yield row

    assert [rows.numbers for rows in read(Counted(), numbers=range(5))] == [[0, 1, 2, 3], [4]]
    assert len(taken) == 5


@pytest.mark.parametrize("dataset", [ROWS, Stream()])
def test_samples_that_the_collator_joins_go_alone(dataset):
    found = read(dataset, join_pairs)
    assert [rows.numbers for rows in found] == [[i] for i in range(11)]
    assert [rows.batch["x"].tolist() for rows in found] == [[[i]] for i in range(11)]


def test_what_has_no_index_or_length_is_a_stream():
    class NoLength:
        def __getitem__(self, index):
            return ROWS[index]

    assert not is_stream(ROWS)
    assert is_stream(Stream())
    assert is_stream(NoLength())
    assert is_stream(row for row in ROWS)
