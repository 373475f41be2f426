"""Reading with a seed: the same draws anywhere, and no trace in the generators of others."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from footplate.data.reads import (
    SeededReads,
    SeededRows,
    fetch_rows,
    mix_seed,
    read_rows,
    read_seeded,
    seed_generators,
    seed_of,
)
from numbered import (
    ManyAtOnce,
    Noisy,
    NoisyAtOnce,
    Numbers,
    contents,
    generator_states,
    noise,
    random_collate,
)


@pytest.fixture(autouse=True)
def _generators_as_before():
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)


def test_the_same_seed_gives_the_same_draws_and_another_gives_others():
    first = read_seeded(seed_of(7), noise)
    random.random(), np.random.rand(), torch.rand(1)
    assert read_seeded(seed_of(7), noise) == first
    assert not set(read_seeded(seed_of(8), noise)) & set(first)
    seed_generators(seed_of(7))
    assert noise() == first


@pytest.mark.parametrize("num_normals", range(4))
def test_every_generator_is_put_back_exactly(num_normals):
    for _ in range(num_normals):  # numpy, Python and torch all draw normal numbers in pairs
        noise()
        np.random.randn()
    before = generator_states()
    read_seeded(3, noise)
    read_seeded(4, lambda: np.random.seed(1))
    read_seeded(4, lambda: random.seed(1))
    read_seeded(4, lambda: torch.manual_seed(1))
    assert generator_states() == before
    np.random.randn()
    moved = generator_states()
    read_seeded(3, noise)
    assert generator_states() == moved


def test_numbers_drawn_between_reads_are_those_without_any():
    def draw(reads):
        np.random.seed(9)
        drawn = []
        for count in range(700):  # past the end of the generator's words several times
            if reads:
                read_seeded(count, noise)
            drawn.extend(np.random.randn(count % 3))
        return drawn

    assert draw(True) == draw(False)


def test_a_state_set_back_by_hand_is_noticed():
    np.random.randn()
    with_one_left = np.random.get_state()
    expected = np.random.randn()
    read_seeded(0, noise)  # looks at a generator with nothing left, in the same place
    np.random.set_state(with_one_left)
    read_seeded(0, noise)
    assert np.random.randn() == expected


def test_another_kind_of_generator_in_numpys_place_is_kept():
    from numpy.random.mtrand import get_bit_generator, set_bit_generator

    original = get_bit_generator()
    try:
        chosen = np.random.PCG64(3)
        set_bit_generator(chosen)
        np.random.randn()
        state = np.random.get_state(legacy=False)
        drawn = read_seeded(7, noise)
        assert get_bit_generator() is chosen
        assert np.random.get_state(legacy=False) == state
    finally:
        set_bit_generator(original)
    assert read_seeded(7, noise) == drawn


def test_a_read_inside_a_read_leaves_the_outer_one_alone():
    def outer(inner):
        first = noise()
        if inner:
            read_seeded(2, lambda: read_seeded(3, noise))
        return first + noise()

    before = generator_states()
    assert read_seeded(1, outer, True) == read_seeded(1, outer, False)
    assert generator_states() == before


def test_generators_are_put_back_when_a_read_fails():
    before = generator_states()

    def fail():
        noise()
        raise KeyError("no such sample")

    with pytest.raises(KeyError, match="no such sample"):
        read_seeded(1, fail)
    assert generator_states() == before


def test_torch_and_numpy_do_not_draw_the_same_words():
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
    assert read_rows(dataset, [2], len) == 1


@pytest.mark.parametrize("dataset", [Noisy(), NoisyAtOnce()])
def test_a_worker_draws_what_this_process_draws(dataset):
    requests = [(seed_of(position), [position, position + 1]) for position in range(0, 8, 2)]
    there = DataLoader(SeededRows(dataset), batch_sampler=requests, collate_fn=random_collate, num_workers=2)
    here = [read_seeded(seed, read_rows, dataset, rows, random_collate) for seed, rows in requests]
    assert contents(there) == contents(here)


def quiet_reads() -> SeededReads:
    """Reads that have seen enough to leave the seeding out."""
    reads = SeededReads()
    for count in range(SeededReads.num_tried):
        reads.read(count, int)
    return reads


def test_reads_that_draw_nothing_are_soon_made_without_seeding(monkeypatch):
    reads, seeds = SeededReads(), []
    monkeypatch.setattr("footplate.data.reads.seed_generators", seeds.append)
    for count in range(100):
        assert reads.read(count, int) == 0
    assert seeds == list(range(SeededReads.num_tried))


@pytest.mark.parametrize("is_quiet", [False, True])
def test_a_read_that_draws_gives_what_its_seed_gives(is_quiet):
    reads = quiet_reads() if is_quiet else SeededReads()
    before = generator_states()
    for seed in (3, 4, 3):
        assert reads.read(seed, noise) == read_seeded(seed, noise)
        assert generator_states() == before


@pytest.mark.parametrize(
    "draw", [random.random, random.gauss, np.random.rand, np.random.randn, lambda: torch.rand(1).item()]
)
@pytest.mark.parametrize("num_normals", range(3))
def test_one_draw_of_any_kind_is_noticed(draw, num_normals):
    reads = quiet_reads()
    random.seed(1)
    for _ in range(num_normals):  # numpy and Python may have one in hand, drawn without a trace
        np.random.randn()
        random.gauss(0, 1)
    call = (lambda: random.gauss(0, 1)) if draw is random.gauss else draw
    before = generator_states()
    assert reads.read(7, call) == read_seeded(7, call)
    assert generator_states() == before


def test_a_read_that_fails_leaves_no_trace():
    def fail():
        noise()
        raise KeyError("no such row")

    reads = quiet_reads()
    before = generator_states()
    with pytest.raises(KeyError):
        reads.read(1, fail)
    assert generator_states() == before


def test_numbers_drawn_between_quiet_reads_are_those_without_any():
    def draw(reads):
        np.random.seed(9)
        random.seed(9)
        torch.manual_seed(9)
        drawn = []
        for count in range(700):
            if reads is not None:
                reads.read(count, int)
            drawn.extend([*np.random.randn(count % 3), random.gauss(0, 1), torch.randn(1).item()])
        return drawn

    assert draw(quiet_reads()) == draw(None)
