"""Evaluation by two processes gives what one process gives: every row once, in the dataset's order."""

from __future__ import annotations

import pytest

from ranks_training import jobs
from ranks_training.small import differences

EXACT = (
    *("classes", "tokens", "objects", "sets", "by_batch", "metric_objects", "predict", "plain_loader"),
    "streams",
)
# the last batch is filled up here, or records are added up in another order
NEAR = ("gathering", "prepared_loader", "own_loss")


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluating")
    names = [f"evaluating.{name}" for name in (*EXACT, *NEAR, "first_rank", "notes")]
    return jobs.together(folder / "two", *names), jobs.alone(folder / "one", *names)


@pytest.mark.parametrize("name", [*EXACT, *NEAR])
def test_both_ranks_have_what_one_process_has(both, name):
    ranks, one = both[0][f"evaluating.{name}"], both[1][f"evaluating.{name}"]
    for found in ranks:
        assert not differences(found, one, tolerance=0.0 if name in EXACT else 1e-6)


def test_metrics_on_the_first_rank_alone_leave_nothing_on_the_others(both):
    (first, second), one = both[0]["evaluating.first_rank"], both[1]["evaluating.first_rank"]
    assert first == one
    assert second["metrics"] == one["metrics"]
    assert second["seen"] == []
    assert second["predictions"] is None
    assert second["labels"] is None


def test_only_the_first_rank_describes_the_answers_and_it_knows_those_of_all(both):
    (first, second), one = both[0]["evaluating.notes"], both[1]["evaluating.notes"]
    assert first == one
    ((kind, values),) = first
    assert (kind, values["num_items"]) == ("classes", 13)
    assert second == []
