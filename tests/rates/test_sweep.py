"""The rates of a sweep, and when a loss counts as exploded."""

from __future__ import annotations

import itertools

import pytest

from footplate.rates.sweep import Explosion, list_rates


def test_rates_rise_by_the_same_factor_between_the_two_that_were_asked_for():
    rates = list_rates(1e-7, 10, 100)
    assert (rates[0], rates[-1], len(rates)) == (1e-7, 10.0, 100)
    factors = [after / before for before, after in itertools.pairwise(rates)]
    assert factors == pytest.approx([1e8 ** (1 / 99)] * 99)
    extremes = list_rates(1e-30, 1e30, 10)
    assert extremes == sorted(set(extremes))


def first_explosion(losses):
    explosion = Explosion()
    return next((number for number, loss in enumerate(losses) if explosion.has_come(loss)), None)


@pytest.mark.parametrize("level", [1e-6, 0.7, 11.0, 1e6])
def test_a_loss_explodes_far_above_where_it_was_whatever_its_size(level):
    calm = [level, 1.2 * level, 0.8 * level] * 10
    assert first_explosion(calm) is None
    assert first_explosion([*calm, 2.5 * level, 2.5 * level, 2.5 * level]) is None
    assert 30 <= first_explosion([*calm, *[10.0 * level] * 20]) <= 33
    assert first_explosion([*calm, 1e9 * level]) == 30


def test_one_batch_that_stands_out_is_no_explosion():
    assert first_explosion([1.0] * 20 + [8.0] + [1.0] * 20) is None


def test_a_loss_that_fell_to_almost_nothing_explodes_by_its_first_size():
    assert first_explosion([1.0] * 20 + [1e-4] * 20 + [0.1] * 20) is None


def test_losses_below_zero_can_explode():
    assert first_explosion([-2.0] * 20 + [-3.0] * 20) is None
    assert first_explosion([-2.0] * 20 + [50.0] * 20) is not None
