"""How workers read: the same draws for the same position, whoever reads it."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader

from footplate import rng
from footplate.data.worker_reads import SeededRows, fetch_rows, mix_seed, seed_generators, seed_of
from numbered import ManyAtOnce, Noisy, NoisyAtOnce, Numbers, contents, noise, random_collate


def test_the_same_seed_gives_the_same_draws_and_another_gives_others():
    with rng.scoped():
        drawn = []
        for seed in (7, 8, 7):
            seed_generators(seed_of(seed))
            drawn.append(noise())
    assert drawn[0] == drawn[2]
    assert not set(drawn[0]) & set(drawn[1])


def test_torch_and_numpy_do_not_draw_the_same_words():
    import numpy as np

    with rng.scoped():
        seed_generators(11)
        words = torch.randint(0, 2**31, (100,)).tolist()
        assert not set(words) & set((np.random.randint(0, 2**32, 1000, dtype=np.uint64) % 2**31).tolist())


def test_seeds_spread_over_all_bits():
    seeds = [seed_of(42, epoch, position) for epoch in range(20) for position in range(0, 800, 8)]
    assert len({seed & 0xFFFFFFFF for seed in seeds}) == len({seed >> 32 for seed in seeds}) == 2000
    assert all(0 <= seed < 2**64 for seed in [*seeds, seed_of(-1, -5), seed_of(2**70)])
    changed = [(mix_seed(0, n) ^ mix_seed(0, n + 1)).bit_count() for n in range(500)]
    assert 30 < sum(changed) / 500 < 34


def test_seeds_depend_on_every_part_and_its_place():
    parts = [(1, 2, 3), (1, 2, 4), (1, 3, 3), (2, 2, 3), (3, 2, 1), (1, 2), (1, 2, 3, 0)]
    assert len({seed_of(*numbers) for numbers in parts}) == len(parts)


def test_rows_are_fetched_in_one_call_where_that_is_possible():
    dataset = Numbers()
    assert fetch_rows(dataset, [3, 1]) == fetch_rows(ManyAtOnce(), [3, 1]) == [{"x": 3}, {"x": 1}]
    assert dataset.read == [3, 1]


@pytest.mark.parametrize("dataset", [Noisy(), NoisyAtOnce()])
def test_which_worker_reads_a_request_does_not_matter(dataset):
    requests = [(seed_of(position), [position, position + 1]) for position in range(0, 8, 2)]
    read = [
        contents(
            DataLoader(SeededRows(dataset), batch_sampler=requests, collate_fn=random_collate, num_workers=n)
        )
        for n in (1, 2, 3)
    ]
    assert read[0] == read[1] == read[2]
