"""Index lists of a pass: cut, counted as they are used, and drawn again."""

from __future__ import annotations

from itertools import chain

import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from footplate.data.order import LengthGroupedOrder, RandomOrder
from footplate.data.row_pass import Requests, RowPass, cut_batches, cut_stream, find_order
from footplate.data.worker_reads import mix_seed


def flat(rows):
    return list(chain.from_iterable(rows))


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("num_samples", [0, 3, 8, 10])
def test_batches_are_cut_as_torch_cuts_them(num_samples, drop_last):
    theirs = list(BatchSampler(range(num_samples), 4, drop_last))
    assert list(cut_batches(range(num_samples), 4, drop_last)) == theirs
    assert list(cut_stream(iter(range(num_samples)), 4, drop_last)) == theirs


def test_workers_get_the_seed_of_each_lists_first_sample():
    sampler = BatchSampler(RandomOrder(10, 1), 4, False)
    whole = list(RowPass(sampler).requests(5))
    assert [seed for seed, _ in whole] == [mix_seed(5, position) for position in (0, 4, 8)]
    assert list(RowPass(sampler, {"num_samples": 4}).requests(5)) == whole[1:]


def test_only_what_was_used_counts():
    rows = RowPass(BatchSampler(RandomOrder(10, 1), 4, False))
    drawn = list(rows)
    assert rows.state()["num_samples"] == 0
    for batch, position in zip(rows.count(iter(drawn)), (4, 8, 10), strict=True):
        assert rows.state()["num_samples"] == position
        assert len(batch) <= 4
    assert rows.state()["num_batches"] == 3


def test_a_state_names_what_the_order_depends_on():
    order = LengthGroupedOrder(range(1, 21), 4, seed=2)
    first = RowPass(BatchSampler(order, 4, False))
    used = next(first.count(iter(list(first))))
    state = first.state()
    assert state["order"] == {"seed": 2, "batch_size": 4}
    regrouped = LengthGroupedOrder(range(1, 21), 5, seed=9)
    rest = flat(RowPass(BatchSampler(regrouped, 5, False), state))
    assert sorted([*used, *rest]) == list(range(20))
    assert flat(RowPass(BatchSampler(regrouped, 5, False))) == regrouped.indices(0)


def test_a_sampler_of_torchs_generator_is_drawn_again_from_the_same_numbers():
    torch.manual_seed(3)
    sampler = BatchSampler(RandomSampler(range(12)), 4, False)
    first = RowPass(sampler)
    drawn = flat(first)
    state = {**first.state(), "num_samples": 5}
    before = torch.get_rng_state()
    assert flat(RowPass(sampler, state)) == drawn[5:]
    assert torch.equal(torch.get_rng_state(), before)


def test_nothing_is_kept_of_a_fixed_order():
    rows = RowPass(BatchSampler(SequentialSampler(range(12)), 4, False))
    list(rows)
    assert rows.state() == {"num_samples": 0, "num_batches": 0}


def test_requests_are_those_of_the_current_pass():
    requests = Requests()
    for seed in (1, 2):
        requests.current = RowPass(BatchSampler(range(4), 2, False)).requests(seed)
        assert [seeded for seeded, _ in requests] == [mix_seed(seed, 0), mix_seed(seed, 2)]


def test_only_torchs_own_batches_of_an_order_can_be_sought_in():
    class Halves(BatchSampler):
        """Arranges batches in its own way, so that a position means nothing."""

    order = RandomOrder(23)
    assert find_order(BatchSampler(order, 4, False)) is order
    assert find_order(Halves(order, 4, False)) is None
    assert find_order(BatchSampler(range(23), 4, False)) is None
    assert find_order(None) is None
