"""Lengths: from a column, from Arrow without decoding, or from one pass."""

from __future__ import annotations

import logging
import time

import datasets
import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import ConcatDataset, Subset

from footplate.data import lengths as lengths_module
from footplate.data.lengths import find_lengths

SIZES = [3, 1, 4, 1, 5, 0, 2, 6]
ROWS = [
    {"input_ids": list(range(size)), "text": "é" * size, "kind": index} for index, size in enumerate(SIZES)
]


class Untouchable(datasets.Dataset):
    """A dataset that fails if anyone opens a row."""

    def __getitem__(self, key):
        raise AssertionError(f"row {key} was read")

    __getitems__ = __getitem__


def in_arrow(rows=ROWS) -> datasets.Dataset:
    dataset = datasets.Dataset.from_list(rows)
    dataset.__class__ = Untouchable
    return dataset


def test_lengths_come_from_arrow_without_opening_a_row():
    lengths = find_lengths(in_arrow(), "length", "input_ids")
    assert lengths.tolist() == SIZES
    assert lengths.dtype == np.int64
    torch.as_tensor(lengths)[0] = 9  # writable, so torch shares it without a warning


@pytest.mark.parametrize(
    "change",
    [
        lambda dataset: dataset.select([6, 0, 3]),
        lambda dataset: dataset.select(range(2, 7)),
        lambda dataset: dataset.shuffle(seed=0),
        lambda dataset: dataset.shuffle(seed=0).select([1, 5, 2]),
        lambda dataset: datasets.concatenate_datasets([dataset, dataset.select([0, 2]), dataset]),
        lambda dataset: dataset.with_format("torch"),
        lambda dataset: dataset.with_format("numpy", columns=["input_ids"]).select([4, 4, 0]),
        lambda dataset: dataset.cast_column("input_ids", datasets.Sequence(datasets.Value("int8"))),
        lambda dataset: dataset.cast_column("input_ids", datasets.LargeList(datasets.Value("int64"))),
        lambda dataset: dataset.filter(lambda row: row["kind"] % 2 == 0),
        lambda dataset: dataset.map(lambda row: {"input_ids": [*row["input_ids"], 0]}),
    ],
)
def test_lengths_follow_whatever_was_done_to_the_dataset(change):
    changed = change(datasets.Dataset.from_list(ROWS))
    expected = [len(row["input_ids"]) for row in changed.with_format(None)]
    changed.__class__ = Untouchable
    assert find_lengths(changed, "length", "input_ids").tolist() == expected


def test_text_counts_characters_as_len_does():
    assert find_lengths(in_arrow(), "length", "text").tolist() == SIZES


def test_vectors_of_one_size_have_that_length():
    features = datasets.Features({"input_ids": datasets.Sequence(datasets.Value("float32"), length=3)})
    dataset = datasets.Dataset.from_dict({"input_ids": [[1.0, 2.0, 3.0]] * 2}, features=features)
    dataset.__class__ = Untouchable
    assert find_lengths(dataset).tolist() == [3, 3]


def test_a_length_column_is_taken_at_its_word():
    dataset = in_arrow([{**row, "size": 100 + row["kind"]} for row in ROWS])
    assert find_lengths(dataset, "size", "input_ids").tolist() == list(range(100, 108))
    assert find_lengths(dataset.select([7, 0]), "size", "input_ids").tolist() == [107, 100]


def test_columns_that_arrow_cannot_measure_are_read():
    shapes = datasets.Features({"input_ids": datasets.Array2D((None, 2), "float32")})
    dataset = datasets.Dataset.from_dict(
        {"input_ids": [np.zeros((size, 2), "float32").tolist() for size in (3, 1)]}, features=shapes
    )
    assert find_lengths(dataset).tolist() == [3, 1]


def test_a_transform_on_access_decides_over_the_stored_rows():
    def double(batch):
        return {"input_ids": [ids * 2 for ids in batch["input_ids"]]}

    dataset = datasets.Dataset.from_list(ROWS).with_transform(double)
    assert find_lengths(dataset).tolist() == [2 * size for size in SIZES]


@pytest.mark.parametrize("kind", [list, torch.tensor, np.array])
def test_other_datasets_are_measured_in_one_pass(kind):
    items = [{"input_ids": kind(row["input_ids"])} for row in ROWS]
    assert find_lengths(items).tolist() == SIZES


def test_items_may_state_their_length():
    items = [{"input_ids": [0, 0], "length": torch.tensor(7)}]
    assert find_lengths(items, "length").tolist() == [7]
    assert find_lengths(items, None).tolist() == [2]


def test_parts_of_datasets_are_measured_as_their_whole_is():
    whole = in_arrow()
    part = Subset(whole, [7, 0, 0])
    assert find_lengths(part).tolist() == [6, 3, 3]
    assert find_lengths(ConcatDataset([part, whole])).tolist() == [6, 3, 3, *SIZES]


@pytest.mark.parametrize("rows", [in_arrow(), ROWS])
def test_a_missing_key_is_named_with_what_there_is(rows):
    with pytest.raises(
        ValueError, match=r"'length' nor the model input 'pixels' among \['input_ids', 'kind', 'text'\]"
    ):
        find_lengths(rows, "length", "pixels")


def test_samples_that_are_no_dictionaries_are_refused():
    with pytest.raises(ValueError, match="gives tuple"):
        find_lengths([(1, 2), (3, 4)])


def test_a_long_pass_reports_its_progress(caplog, monkeypatch):
    monkeypatch.setattr(lengths_module, "FIRST_PROGRESS_SECONDS", 0.0)
    with caplog.at_level(logging.INFO):
        find_lengths(ROWS)
    assert [record.message[:70] for record in caplog.records] == [
        "Measuring samples for length grouping: 1 of 8 after 0 s. A column 'len"
    ]


def test_a_million_rows_are_measured_in_moments():
    sizes = np.arange(1_000_000) % 7
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    column = pa.ListArray.from_arrays(offsets, np.zeros(offsets[-1], dtype=np.int32))
    dataset = datasets.Dataset(pa.table({"input_ids": column})).shuffle(seed=0)
    start = time.process_time()
    lengths = find_lengths(dataset)
    assert time.process_time() - start < 2
    assert lengths[:3].tolist() == [len(dataset[index]["input_ids"]) for index in range(3)]
