"""Means that leave out what is not finite."""

from __future__ import annotations

import math

import pytest
import torch

from footplate.training.finite import FiniteLosses

NAN, INF = math.nan, math.inf


def feed(losses: FiniteLosses, values: list[float]) -> None:
    for value in values:
        losses.begin_update()
        losses.add(torch.tensor(value))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 2.0], 3.0),
        ([1.0, NAN, 3.0], 6.0),  # the mean of the finite ones, three times
        ([INF, 5.0, -INF, 7.0], 24.0),
        ([1.0] * 700 + [NAN], 701.0),  # more than are kept one by one
    ],
)
def test_what_is_not_finite_counts_as_the_mean_of_the_others(values, expected):
    losses = FiniteLosses()
    feed(losses, values)
    assert losses.drain(sum(values)) == expected
    feed(losses, [4.0, NAN])
    assert losses.drain(NAN) == 8.0


def test_without_a_finite_one_the_sum_stays_what_it_is():
    losses = FiniteLosses()
    feed(losses, [NAN, INF])
    assert math.isnan(losses.drain(NAN))


def test_a_finite_sum_is_not_changed_by_a_bit():
    losses = FiniteLosses()
    feed(losses, [0.1, 0.2, 0.3])
    assert losses.drain(0.6000000001) == 0.6000000001


def test_an_update_can_be_undone_and_the_rest_stored():
    losses = FiniteLosses()
    feed(losses, [1.0, NAN, 9.0])
    losses.undo_update()
    other = FiniteLosses()
    other.restore(losses.totals(), torch.device("cpu"))
    feed(other, [2.0])
    assert other.drain(NAN) == 4.5
