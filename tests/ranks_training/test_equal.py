"""Two processes give the run of one process at an equal global batch."""

from __future__ import annotations

import numpy as np
import pytest

from ranks_training import jobs

JOBS = ("whole", "accumulated", "uneven", "uneven_accumulated", "dropped", "items", "uneven_items", "stopped")
NAMES = [f"equal.{name}" for name in JOBS]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("equal")
    names = [*NAMES, "equal.seldom_logged"]
    return jobs.together(folder / "two", *names), jobs.alone(folder / "one", *names)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_rows_are_in_every_update(both, name):
    (first, second), one = both[0][name], both[1][name]
    assert first["seen"].keys() == second["seen"].keys() == one["seen"].keys()
    for step, ids in one["seen"].items():
        pairs = zip(first["seen"][step], second["seen"][step], strict=True)
        assert [mine + theirs for mine, theirs in pairs] == ids


@pytest.mark.parametrize("name", NAMES)
def test_weights_differ_by_the_order_of_sums_at_most(both, name):
    (first, second), one = both[0][name], both[1][name]
    assert first["weights"] == second["weights"]
    for key, value in one["weights"].items():
        np.testing.assert_allclose(first["weights"][key], value, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_the_log_is_the_same_up_to_the_order_of_sums(both, name):
    (first, second), one = both[0][name], both[1][name]
    assert first["history"] == second["history"]
    assert len(first["history"]) == len(one["history"]) > 4
    for entry, expected in zip(first["history"], one["history"], strict=True):
        assert list(entry) == list(expected)
        assert entry == pytest.approx(expected, rel=1e-5, abs=1e-6)
        for key in ("learning_rate", "epoch", "step"):
            assert entry.get(key) == expected.get(key)


def test_the_loss_of_the_run_is_that_of_all_ranks_after_the_last_log_too(both):
    (first, second), one = both[0]["equal.seldom_logged"], both[1]["equal.seldom_logged"]
    assert [entry["step"] for entry in one["history"]] == [5, 8]
    assert one["history"][-1]["train_loss"] != one["history"][0]["loss"]
    for rank in (first, second):
        assert rank["history"][-1]["train_loss"] == pytest.approx(one["history"][-1]["train_loss"], rel=1e-6)
