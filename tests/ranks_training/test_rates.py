"""Two processes find the learning rate of one, and the run afterwards is the same."""

from __future__ import annotations

import pytest

from ranks_training import jobs

NAMES = ["rates.sweep", "rates.swept", "rates.plain", "rates.late", "rates.cut"]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return jobs.together(tmp_path_factory.mktemp("two"), *NAMES)


def test_the_curve_is_that_of_one_process_with_as_many_rows(two, tmp_path):
    one = jobs.alone(tmp_path, "rates.sweep")["rates.sweep"]
    first, second = two["rates.sweep"]
    assert first == second
    assert first["stopped"] == one["stopped"]
    assert first["rates"] == one["rates"]
    assert first["losses"] == pytest.approx(one["losses"], rel=1e-3)
    assert first["suggestion"] == one["suggestion"]


@pytest.mark.parametrize("number", [0, 1])
def test_a_run_afterwards_is_the_same_on_each_rank(two, number):
    assert two["rates.swept"][number] == two["rates.plain"][number]


def test_a_model_that_would_be_cut_up_is_refused_on_all_ranks(two):
    for said in two["rates.cut"]:
        assert "fsdp cuts it up for good. Look for the rate without fsdp" in said


def test_after_a_run_it_is_refused_on_all_ranks(two):
    for said in two["rates.late"]:
        assert "With 2 processes, find_learning_rate() comes before train()" in said
