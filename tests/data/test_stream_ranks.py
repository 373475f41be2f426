"""Streams that several processes read with workers."""

from __future__ import annotations

import pytest

from footplate.data.loader import Loader
from footplate.data.shares import FILL, Ranks
from numbered import Stream


def batches_of(rank: int, num_workers: int) -> list[list[int]]:
    loader = Loader(
        Stream(16),
        batch_size=2,
        is_training=True,
        num_workers=num_workers,
        ranks=Ranks(rank, 2, FILL),
        shows_progress=False,
    )
    return [batch["x"].tolist() for batch in loader]


@pytest.mark.parametrize(
    ("num_workers", "first", "second"),
    [
        (0, [[0, 1], [4, 5], [8, 9], [12, 13]], [[2, 3], [6, 7], [10, 11], [14, 15]]),
        (2, [[0, 2], [1, 3], [8, 10], [9, 11]], [[4, 6], [5, 7], [12, 14], [13, 15]]),
    ],
)
def test_each_rank_gets_its_part_of_a_round_and_a_round_is_of_one_worker(num_workers, first, second):
    assert batches_of(0, num_workers) == first
    assert batches_of(1, num_workers) == second
