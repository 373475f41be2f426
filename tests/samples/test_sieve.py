"""What is kept of many rows: all losses, few rows."""

from __future__ import annotations

import math

import pytest

from footplate.samples.sieve import Sieve


def sift(losses, count=3, size=4):
    sieve, asked = Sieve(count), []
    for start in range(0, len(losses), size):
        part = losses[start : start + size]

        def take(place, start=start):
            asked.append(start + place)
            return f"row {start + place}"

        sieve.add(range(start, start + len(part)), part, take)
    return sieve, asked


def test_the_hardest_rows_are_kept_in_order():
    sieve, _ = sift([0.1, 5.0, 0.2, 3.0, 0.3, 9.0, 0.4, 4.0])
    assert [(kept.number, kept.loss, kept.content) for kept in sieve.hardest] == [
        (5, 9.0, "row 5"),
        (1, 5.0, "row 1"),
        (7, 4.0, "row 7"),
    ]
    assert sieve.losses.tolist() == [0.1, 5.0, 0.2, 3.0, 0.3, 9.0, 0.4, 4.0]
    assert sieve.numbers.tolist() == list(range(8))


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_comes_first(odd):
    sieve, _ = sift([0.1, 5.0, odd, 3.0, 7.0])
    assert [kept.number for kept in sieve.hardest] == [2, 4, 1]


def test_of_equal_losses_the_first_rows_are_kept():
    sieve, _ = sift([1.0] * 10)
    assert [kept.number for kept in sieve.hardest] == [0, 1, 2]


def test_only_rows_that_are_kept_are_taken_from_their_batch():
    _, asked = sift([float(10 - i) for i in range(10)])
    assert asked == [0, 1, 2]
