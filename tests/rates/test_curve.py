"""Which places are found on a curve, and when none is: curves are made from formulas, with known places."""

from __future__ import annotations

import math

import numpy as np
import pytest

from footplate.rates.curve import smooth, study

RATES = np.logspace(-7, 1, 100)


def valley(rates=RATES, middle=1e-2, width=0.35, noise=0.0, seed=0):
    """A loss of 3 that falls to 1, fastest at `middle`, and rises by far a hundred times higher."""
    logs = np.log10(rates / middle)
    losses = 3.0 - 2.0 / (1.0 + np.exp(-logs / width)) + np.exp((logs - 2.0) * 5.0)
    return losses + noise * np.random.default_rng(seed).standard_normal(len(rates))


@pytest.mark.parametrize("middle", [1e-5, 1e-3, 1e-2])
@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_steepest_place_is_found_in_noise(middle, noise, seed):
    found = study(valley(middle=middle, noise=noise, seed=seed), 100)
    assert found.problem == ""
    assert RATES[found.steepest] == pytest.approx(middle, rel=1.5 if noise else 0.25)
    assert middle * 3 < RATES[found.lowest] < middle * 100
    assert middle * 30 < RATES[found.diverges] < middle * 200
    assert found.start == pytest.approx(3.0, abs=4 * noise + 0.03)


@pytest.mark.parametrize(("count", "wanted"), [(30, 100), (50, 50), (300, 300), (1000, 1000)])
def test_any_number_of_points_finds_the_same_place(count, wanted):
    rates = np.logspace(-7, 1, wanted)
    losses = valley(rates)
    found = study(losses if count == wanted else losses[: round(0.75 * wanted)], wanted)
    assert rates[found.steepest] == pytest.approx(1e-2, rel=0.5)


def test_an_explosion_does_not_reach_back():
    losses = valley()
    explodes = losses.copy()
    explodes[92:] = 1e30
    one, other = study(losses[:92], 100), study(explodes, 100)
    assert (one.steepest, one.lowest) == (other.steepest, other.lowest)
    assert max(other.smoothed) < 10.0
    assert all(map(math.isfinite, other.smoothed))


def test_losses_below_zero_count_as_others_do():
    assert study(valley() - 10.0, 100).steepest == study(valley(), 100).steepest


def test_smoothing_leaves_a_line_as_it_is_at_its_ends_too():
    line = 3.0 - 0.25 * np.arange(40.0)
    values, slopes, _ = smooth(line, 3.0)
    assert values == pytest.approx(line)
    assert slopes == pytest.approx(np.full(40, -0.25))


@pytest.mark.parametrize(
    ("losses", "problem"),
    [
        (valley()[:9], "few"),
        ([], "few"),
        (np.full(100, 2.0), "flat"),
        (np.zeros(100), "flat"),
        (2.0 + 0.5 * np.random.default_rng(0).standard_normal(100), "noisy"),
        (2.0 + np.exp(np.arange(100.0) / 8 - 3), "rises"),
        (valley(middle=1e3), "flat"),  # falls beyond the highest rate only
        (valley(middle=9.0), "falls on"),
        (valley(middle=1e-2, noise=3.0), "noisy"),
    ],
)
def test_a_curve_without_a_sure_place_says_why(losses, problem):
    found = study(losses, 100)
    assert found.problem == problem
    assert found.steepest is None
    assert len(found.smoothed) == len(losses)


def test_chance_alone_is_hardly_ever_taken_for_a_fall():
    """Noise of other shapes too: with few large values, or of one sign."""
    generator = np.random.default_rng(3)
    curves = [
        *(2.0 + generator.standard_normal(100) for _ in range(100)),
        *(2.0 + 0.3 * generator.standard_t(3, 100) for _ in range(100)),
        *(generator.exponential(1.0, 100) for _ in range(100)),
        *(5.0 - generator.exponential(1.0, 100) for _ in range(100)),
    ]
    assert sum(study(curve, 100).steepest is not None for curve in curves) <= 4
