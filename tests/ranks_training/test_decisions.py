"""What one rank decides or meets, all ranks do: they end together, with the same weights, and none waits."""

from __future__ import annotations

import pytest

from ranks_training import jobs
from ranks_training.small import differences

JOBS = (
    *("early_stop", "stops", "lone_callback", "max_time", "save_every", "skip", "refuse"),
    *("memory", "enough_memory", "recorded"),
)
ENDS = {  # the update after which a run ends in which a callback asks for it from the fifth on
    **dict.fromkeys(("on_step_begin", "on_substep_end", "on_pre_optimizer_step", "on_optimizer_step"), 6),
    **dict.fromkeys(("on_step_end", "on_log"), 5),
    **dict.fromkeys(("on_evaluate", "on_save", "on_prediction_step"), 6),  # every second update
    **{"on_epoch_begin": 7, "on_epoch_end": 6},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("deciding")


@pytest.fixture(scope="module")
def two(folder):
    found = jobs.together(folder / "two", *(f"deciding.{name}" for name in JOBS))
    return {name.split(".")[1]: ranks for name, ranks in found.items()}


def same(ranks):
    """The result of both ranks, which must be alike but for the rows that they read."""
    first, second = ({**rank, "seen": None} for rank in ranks)
    assert not differences(first, second)
    return ranks[0]


def test_early_stopping_ends_all_and_loads_the_best_weights(two):
    found = same(two["early_stop"])
    assert found["step"] == 16
    assert found["best"] == "checkpoint-8"
    assert found["checkpoints"] == ["checkpoint-8", "checkpoint-16"]
    assert found["weights"] == found["stored"]


@pytest.mark.parametrize("event", ENDS)
def test_a_callback_on_one_rank_ends_the_run_of_all(two, event):
    assert same([rank[event] for rank in two["stops"]])["step"] == ENDS[event]


def test_callbacks_that_only_the_first_rank_has_are_obeyed_by_all(two):
    found = {flag: same([rank[flag] for rank in two["lone_callback"]]) for flag in two["lone_callback"][0]}
    assert found["should_training_stop"]["step"] == 2
    assert found["should_epoch_stop"]["step"] == 3  # two updates of the first epoch, one of the second
    assert found["should_save"]["checkpoints"] == [f"checkpoint-{step}" for step in range(2, 9)]
    evaluated = [entry["step"] for entry in found["should_evaluate"]["history"] if "eval_loss" in entry]
    assert evaluated == list(range(2, 9))


def test_the_time_limit_ends_all_ranks_at_the_same_update_with_a_checkpoint(two):
    found = same(two["max_time"])
    assert 1 < found["step"] < 100
    assert found["checkpoints"] == [f"checkpoint-{found['step']}"]


def test_saves_by_the_clock_are_made_by_all_ranks_together(two):
    found = same(two["save_every"])
    assert found["step"] == 32
    assert 2 <= len(found["checkpoints"]) <= 12


def test_an_update_that_is_not_finite_on_one_rank_is_skipped_by_all(two):
    found = same(two["skip"])
    weights = found["each"]
    assert len(weights) == 8
    assert weights[2] == weights[1]
    assert weights[3] != weights[2]
    assert [entry["step"] for entry in found["history"] if "nonfinite" in entry] == [3]


def test_an_update_that_is_not_finite_on_one_rank_is_raised_on_all(two):
    first, second = two["refuse"]
    assert "Update 3 has loss" in first["error"]
    assert "Update 3 has loss" in second["error"]
    assert first["weights"] == second["weights"]
    assert first["step"] == second["step"] == 2


def test_lack_of_memory_on_one_rank_makes_all_use_smaller_pieces(two):
    found, plain = same([*two["memory"]]), two["enough_memory"][0]
    assert found["step"] == plain["step"]
    assert not differences(found, plain, tolerance=1e-5)


def test_what_is_recorded_is_averaged_over_ranks_as_one_process_does(two, folder):
    one = jobs.alone(folder / "one", "deciding.recorded")["deciding.recorded"]
    found = same(two["recorded"])
    assert "mean_x" in found["history"][0]
    assert any("eval_mean_x" in entry for entry in found["history"])
    assert not differences(found["history"], one["history"], tolerance=1e-5)
