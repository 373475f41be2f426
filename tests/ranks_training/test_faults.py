"""A rank that raises, is killed, stands still or disagrees: all stop or go on, and what happened is named."""

from __future__ import annotations

import re
import time

import pytest

import ranks
from ranks_training import jobs
from ranks_training.small import differences


def test_an_error_on_one_rank_ends_the_command_and_is_last_on_the_screen(tmp_path):
    result = jobs.launch(tmp_path, "failing.raising")
    assert result.code != 0
    assert result.ended_at - result.times("raised")[0] < 15
    assert "ValueError: the labels of this row are upside down" in "".join(result.output.splitlines()[-4:])
    assert (
        'raise ValueError("the labels of this row are upside down")' in result.output.split("Root Cause")[1]
    )
    assert len(re.findall("RankFailed: Rank 1 .* failed, so rank 0 stops too", result.output)) == 1


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    return jobs.together(folder, "failing.undisturbed", "failing.disagreeing")


def check_same(found, whole):
    for rank, expected in zip(found, whole["failing.undisturbed"], strict=True):
        for key in ("history", "weights", "optimizer", "step"):
            assert not differences(rank[key], expected[key]), key


@pytest.mark.slow
@pytest.mark.parametrize(("job", "first"), [("killed_training", "7"), ("killed_saving", "5")])
def test_a_killed_rank_is_restarted_by_torchrun_and_the_run_ends_bit_equal(tmp_path, whole, job, first):
    name = f"failing.{job}"
    found = jobs.together(tmp_path, name, options=["--max-restarts", "3"])[name]
    assert (tmp_path / f"{name}.killed").exists()
    assert [rank["first"] for rank in found] == [int(first)] * 2
    check_same(found, whole)


@pytest.mark.slow
@pytest.mark.parametrize("job", ["killed_training", "killed_saving"])
def test_a_killed_rank_ends_the_command_and_the_run_goes_on_by_hand(tmp_path, whole, job):
    name = f"failing.{job}"
    assert jobs.launch(tmp_path, name).code != 0
    sealed = sorted(path.name for path in (tmp_path / name).glob("checkpoint-*"))
    assert sealed == (["checkpoint-2", "checkpoint-4"] + ["checkpoint-6"] * (job == "killed_training"))
    check_same(jobs.together(tmp_path, name)[name], whole)


@pytest.mark.slow
def test_a_rank_that_stands_still_is_named_with_its_stack(tmp_path, whole):
    result = jobs.launch(tmp_path, "failing.standing")
    assert result.code == 0
    named = (
        r"does not move: rank 1 \(.*\) has stood at step 4 in 'update' for .*; rank 0 \(.*\) waits at step 4"
    )
    assert re.search(named, result.output), result.output[-3000:]
    assert "wait_for_nothing" in result.output
    check_same(jobs.read(tmp_path, "failing.standing"), whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "words"),
    [("arguments", ["learning_rate", "0.1", "1.1"]), ("rows", ["29", "30"]), ("code", ["wait_for_nothing"])],
)
def test_ranks_that_disagree_are_refused_before_the_first_update(whole, case, words):
    for rank in whole["failing.disagreeing"]:
        assert rank[case]["step"] == 0
        assert "rank 0" in rank[case]["error"]
        for word in words:
            assert word in rank[case]["error"]


@pytest.mark.slow
def test_a_second_run_in_the_same_folder_is_refused_on_all_its_ranks(tmp_path):
    name = "failing.occupying"
    first = ranks.start_torchrun(jobs.SCRIPT, str(tmp_path), name)
    try:
        deadline = time.monotonic() + 100
        while not list((tmp_path / name).glob("checkpoint-*")) and time.monotonic() < deadline:
            time.sleep(0.1)
        second = jobs.launch(tmp_path, name)
        assert second.code != 0
        assert len(re.findall(r"\[rank[01]\]:.*FolderInUse", second.output)) == 2, second.output[-3000:]
    finally:
        (tmp_path / f"{name}.end").touch()
        output = first.communicate(timeout=100)[0]
    assert first.returncode == 0, output[-3000:]
