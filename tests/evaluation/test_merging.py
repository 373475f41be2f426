"""Batches of several ranks come together in the order of one process."""

from __future__ import annotations

import numpy as np
import pytest

import ranks
from footplate.evaluation import merging
from footplate.evaluation.merging import Batch, in_turn, merge_ranks, slice_rows


def batch_of(rank, number, num_rows=2):
    values = np.full((num_rows, 3), 10 * rank + number, dtype=np.float32)
    return Batch({"logits": (values, None)}, num_rows, list(range(num_rows)), 0.5, num_rows, 4.0)


def test_batches_come_in_turn_and_lists_may_end_early():
    assert list(in_turn([[1, 4, 6], [2, 5], [3]])) == [1, 2, 3, 4, 5, 6]
    assert list(in_turn([[], [1]])) == [1]
    assert list(in_turn([])) == []


def test_rows_are_cut_from_every_array():
    arrays = {"a": np.arange(6).reshape(3, 2), "b": (np.arange(3), None, np.float32(2))}
    cut = slice_rows(arrays, 1, 3)
    assert cut["a"].tolist() == [[2, 3], [4, 5]]
    assert (cut["b"][0].tolist(), cut["b"][1], cut["b"][2]) == ([1, 2], None, 2)


def test_one_process_hands_on_its_own_batches():
    seen = []
    batches = [batch_of(0, number) for number in range(3)]
    merge_ranks(batches, seen.append, to_all=True)
    assert all(given is taken for given, taken in zip(batches, seen, strict=True))
    merge_ranks([], seen.append, to_all=False)
    assert len(seen) == 3


@pytest.mark.parametrize("block", [1, 60, 1 << 20], ids=["one by one", "a few", "all at once"])
@pytest.mark.parametrize("to_all", [True, False])
def test_two_processes_merge_what_they_have(block, to_all, tmp_path, monkeypatch):
    monkeypatch.setattr(merging, "BLOCK_BYTES", block)

    def merge(rank):
        seen: list[Batch] = []
        merge_ranks([batch_of(rank, number) for number in range(3 - rank)], seen.append, to_all)
        assert all(batch.num_rows == batch.num_loss_rows == 2 and batch.items == 4.0 for batch in seen)
        return [batch.values["logits"][0][0, 0].item() for batch in seen]

    everything = [0.0, 10.0, 1.0, 11.0, 2.0]
    assert ranks.fork(merge, tmp_path) == [everything, everything if to_all else []]


def test_a_process_without_a_batch_takes_part(tmp_path):
    def merge(rank):
        seen: list[Batch] = []
        merge_ranks([batch_of(0, 7)] if rank == 0 else [], seen.append, to_all=True)
        return len(seen)

    assert ranks.fork(merge, tmp_path) == [1, 1]
