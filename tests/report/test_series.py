"""Curves that stay small."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

from footplate.report.series import CAPACITY, Series, Spaced, TimeParts
from footplate.resumed import ResumePoint


def series_of(values):
    series = Series()
    for step, value in enumerate(values, start=1):
        series.add(step, value)
    return series


def test_a_short_curve_is_kept_point_by_point():
    plain = series_of([3.0, 2.0, 1.0]).to_plain(100)
    assert plain == {"steps": [1, 2, 3], "values": [3.0, 2.0, 1.0]}


def test_a_long_curve_is_bounded_and_keeps_first_last_and_every_peak():
    generator = random.Random(0)
    values = [generator.gauss(0, 1) for _ in range(100_000)]
    values[54_321], values[77_777] = 40.0, -40.0
    series = series_of(values)
    assert len(series.steps) <= CAPACITY
    plain = series.to_plain(2000)
    assert len(plain["steps"]) <= 2000 + 2
    points = dict(zip(plain["steps"], plain["values"], strict=True))
    assert points[54_322] == 40.0
    assert points[77_778] == -40.0
    for step in (1, 100_000):
        assert points[step] == pytest.approx(values[step - 1], rel=1e-5)
    assert plain["steps"] == sorted(set(plain["steps"]))
    for step, value in points.items():  # thinned, never made up
        assert value == pytest.approx(values[step - 1], rel=1e-5)


def test_points_are_spread_over_the_whole_run():
    steps = series_of([1.0 + i % 7 for i in range(100_000)]).to_plain(1000)["steps"]
    gaps = [b - a for a, b in pairwise(steps)]
    assert max(gaps) < 1000


def test_means_are_those_of_all_points_and_not_of_the_peaks():
    values = [10.0 if i % 50 == 0 else 1.0 for i in range(50_000)]
    plain = series_of(values).to_plain(1000)
    shown = sum(plain["values"]) / len(plain["values"])
    mean = sum(plain["means"]) / len(plain["means"])
    assert shown > 3  # the peaks are half of what is drawn
    assert mean == pytest.approx(sum(values) / len(values), rel=0.02)


def test_building_a_page_leaves_the_curve_as_it_was():
    series = series_of(range(5000))
    first = series.to_plain(100)
    assert series.to_plain(100) == first
    assert len(series.steps) == 5000


def test_values_that_are_not_finite_are_counted_and_not_drawn():
    plain = series_of([1.0, math.nan, math.inf, 2.0]).to_plain(10)
    assert plain["values"] == [1.0, 2.0]
    assert (plain["not_finite"], plain["num_not_finite"]) == ([2, 3], 2)


def test_a_second_value_at_a_step_replaces_the_first():
    series = series_of([1.0, 2.0])
    series.add(2, 5.0)
    assert (series.steps, series.values) == ([1, 2], [1.0, 5.0])


def test_what_lies_past_a_step_can_be_dropped():
    series = series_of([1.0, 2.0, math.nan, 4.0])
    series.cut(ResumePoint(2))
    assert series.to_plain(10) == {"steps": [1, 2], "values": [1.0, 2.0]}


def test_spaced_items_are_even_and_end_with_the_last():
    spaced: Spaced[int] = Spaced(100, lambda item: item)
    for item in range(12_345):
        spaced.add(item)
    items = spaced.items
    assert len(items) <= 101
    assert (items[0], items[-1]) == (0, 12_344)
    gaps = {b - a for a, b in pairwise(items[:-1])}
    assert gaps == {128}


def test_spaced_items_go_on_after_everything_was_dropped():
    spaced: Spaced[int] = Spaced(4, lambda item: item)
    for item in range(5, 25):
        spaced.add(item)
    spaced.cut(ResumePoint(2))
    assert spaced.items == []
    spaced.add(3)
    assert spaced.items == [3]


def test_seconds_are_summed_and_never_lost():
    parts = TimeParts(capacity=10)
    for step in range(1, 1001):
        parts.add(step, {"forward": 0.25, **({"evaluation": 2.0} if step % 100 == 0 else {})})
    plain = parts.to_plain()
    assert len(plain["steps"]) <= 10
    assert plain["steps"][-1] == 1000
    assert sum(plain["parts"]["forward"]) == pytest.approx(250)
    assert sum(plain["parts"]["evaluation"]) == pytest.approx(20)
