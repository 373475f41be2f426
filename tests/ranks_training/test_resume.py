"""A run of two processes that is cut short and resumed is the run that was never cut short."""

from __future__ import annotations

from itertools import chain

import pytest

from ranks_training import jobs
from ranks_training.small import differences

KINDS = ("rows", "stream", "bare", "unheard")
SAVED = ("resuming.rows_saved", "resuming.stream_saved")
TAKEN_OVER = ("resuming.rows_taken_over", "resuming.stream_taken_over", "resuming.rows_recut")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What two processes gave, and what one gave: each goes on from checkpoints of the other."""
    folder = tmp_path_factory.mktemp("resuming")
    one = jobs.alone(folder / "one", *SAVED)
    parts = [f"resuming.{kind}_{part}" for kind in KINDS for part in ("whole", "cut", "on")]
    two = jobs.together(folder / "two", *parts, *SAVED, *TAKEN_OVER)
    return two, {**one, **jobs.alone(folder / "one", *TAKEN_OVER)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_to_one_rank_stops_both_and_seals_a_checkpoint(results, kind):
    cut = results[0][f"resuming.{kind}_cut"]
    steps = {rank["step"] for rank in cut}
    assert len(steps) == 1
    assert [rank["code"] for rank in cut] == [143, 143]
    (step,) = steps
    assert 0 < step < results[0][f"resuming.{kind}_whole"][0]["step"]
    assert list(cut[0]["files"]) == [f"checkpoint-{step}"]
    files = cut[0]["files"][f"checkpoint-{step}"]
    assert {"rng_state_0.pth", "rng_state_1.pth", "manifest.json", "ranks.pt"} <= set(files)
    assert "rng_state.pth" not in files


@pytest.mark.parametrize("kind", KINDS)
def test_the_resumed_run_ends_as_the_undisturbed_one_to_the_last_bit(results, kind):
    two = results[0]
    for rank in (0, 1):
        whole, cut, rest = (two[f"resuming.{kind}_{part}"][rank] for part in ("whole", "cut", "on"))
        assert cut["seen"].keys().isdisjoint(rest["seen"])
        assert {**cut["seen"], **rest["seen"]} == whole["seen"]
        for part in ("history", "weights", "optimizer", "step"):
            assert not differences(rest[part], whole[part]), part


def ids(ranks):
    """The rows of every update, those of all ranks together."""
    steps = {int(step): None for rank in ranks for step in rank["seen"]}
    return {
        step: [
            list(chain(*parts)) for parts in zip(*(rank["seen"][str(step)] for rank in ranks), strict=True)
        ]
        for step in steps
    }


@pytest.mark.parametrize("kind", ["rows", "stream"])
def test_another_number_of_processes_goes_on_with_the_rows_that_follow(results, kind):
    two, one = results
    whole = ids(two[f"resuming.{kind}_saved"])
    assert whole == ids([one[f"resuming.{kind}_saved"]])
    rest = {step: rows for step, rows in whole.items() if step > 3}
    assert ids(two[f"resuming.{kind}_taken_over"]) == rest
    assert ids([one[f"resuming.{kind}_taken_over"]]) == rest


def test_rows_follow_with_another_batch_size_too(results):
    two, one = results
    whole = list(chain(*chain(*ids(two["resuming.rows_saved"]).values())))
    for ranks in (two["resuming.rows_recut"], [one["resuming.rows_recut"]]):
        rest = list(chain(*chain(*ids(ranks).values())))
        assert rest == whole[18 : 18 + len(rest)]
        assert len(rest) >= 16
