"""One rank fails: the others stop within seconds and name it, and its traceback is the last to be seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.distributed import HashStore

import ranks
from footplate.distributed import failures
from footplate.distributed.board import Board
from footplate.distributed.failures import FailureWatch, is_collective_error

SCRIPT = Path(__file__).with_name("failing_processes.py")
ERROR = "ValueError: the answer is 41"
SECONDS = (
    30  # 3 to 5 on an idle machine, up to 11 were seen on a busy one; unwatched, ranks wait for 30 minutes
)


@pytest.fixture(scope="module")
def raising():
    return ranks.torchrun(SCRIPT, "raise", "0")


@pytest.fixture(scope="module")
def killed():
    return ranks.torchrun(SCRIPT, "kill", "1")


@pytest.fixture(scope="module")
def lingering():
    """Rank 0, which holds the store, announces its error and lives on for four seconds."""
    return ranks.run_each(SCRIPT, "linger", "0")


# ---- a rank raises ----


def test_a_rank_that_raises_ends_the_whole_command_within_seconds(raising):
    assert raising.code == 1
    assert raising.ended_at - raising.times("raised")[0] < SECONDS


def test_rank_and_traceback_of_the_first_error_are_last_on_the_screen(raising):
    cause = raising.output.split("Root Cause")[1]
    assert "rank      : 0 (local_rank: 0)" in cause
    assert "Traceback (most recent call last)" in cause
    assert 'raise ValueError("the answer is 41")' in cause
    assert ERROR in "".join(cause.splitlines()[-3:])


def test_the_other_rank_names_the_one_that_failed_and_hides_its_own_collective(raising):
    lines = [line for line in raising.output.splitlines() if "RankFailed: Rank 0" in line]
    assert len(lines) == 1
    assert lines[0].endswith(f"failed, so rank 1 stops too: {ERROR}")
    assert "Connection closed by peer" not in raising.output


# ---- a rank is killed ----


def test_the_survivor_names_a_rank_that_was_killed(killed):
    lines = [
        line for line in killed.output.splitlines() if line.startswith("[rank0]") and "RankFailed" in line
    ]
    assert len(lines) == 1
    assert "Rank 1 (" in lines[0]
    assert "no longer answers and left no error: it was probably killed" in lines[0]
    assert killed.ended_at - killed.times("raised")[0] < SECONDS
    assert killed.output.split("Root Cause")[1].count("SIGKILL") == 2


# ---- a rank fails, and its process lives on ----


def test_a_rank_that_waits_for_a_failed_one_is_ended(lingering):
    failed, waiting = lingering
    assert failed.code == 1
    assert waiting.code == 1
    assert waiting.ended_at - failed.times("raised")[0] < SECONDS
    assert (
        "Rank 1 did not come back from its current call within 1 s. Its process ends now: Rank 0 ("
        in waiting.output
    )


def test_without_torchrun_the_last_message_of_every_rank_holds_the_first_traceback(lingering):
    for result in lingering:
        assert result.output.strip().endswith(ERROR)
        assert 'raise ValueError("the answer is 41")' in result.output


# ---- parts ----


def test_errors_of_collectives_are_told_from_others():
    lost = RuntimeError("[third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer")
    assert is_collective_error(lost)
    assert is_collective_error(torch.distributed.DistBackendError("watchdog"))
    assert not is_collective_error(RuntimeError("shapes do not match"))
    assert not is_collective_error(ValueError("the gloo setting"))
    wrapped = ValueError("could not evaluate")
    wrapped.__cause__ = lost
    assert is_collective_error(wrapped)


def test_one_process_is_not_watched_and_keeps_its_error():
    with pytest.raises(ValueError, match="mine") as caught, FailureWatch() as watch:
        raise ValueError("mine")
    assert type(caught.value) is ValueError
    assert watch.find_failure() is None
    assert watch.explain(RuntimeError("gloo")) is None


def test_only_ranks_that_said_nothing_count_as_killed():
    board = Board(HashStore(), "test")
    watch = FailureWatch()
    watch._board, watch._num_ranks = board, 5
    beats = ["4 here 10", "9 here 11", failures.FINISHED, failures.STOPPED, None]
    for number, beat in enumerate(beats):
        if beat is not None:
            board.write(f"beat/{number}", beat)
    told = watch.explain(RuntimeError("gloo: Connection closed by peer"))
    assert str(told).startswith("Rank 1 (here, process 11) no longer answers and left no error")
    assert watch._find_silent(board, [beats[0], "8 here 11", *beats[2:]]) == (
        "Rank 2 finished training before the others."
    )
    assert watch._find_silent(board, ["3 here 10", "8 here 11", "7 here 12", *beats[3:]]) is None


def test_many_killed_ranks_are_named_in_one_sentence():
    text = failures.describe_killed([f"Rank {number}" for number in range(20)])
    assert text.startswith(
        "Rank 0, Rank 1, Rank 2, Rank 3, Rank 4, Rank 5, Rank 6, Rank 7 and 12 more no longer answer "
    )


def test_a_failure_can_be_sent_as_text_and_is_bounded():
    try:
        raise ValueError("x" * 50_000)
    except ValueError as error:
        failure = failures.describe_failure(error, 3)
    assert failure.rank == 3
    assert len(failure.error) < 600
    assert len(failure.traceback) <= failures.MAX_TRACEBACK
    assert failures.Failure(**json.loads(json.dumps(vars(failure)))) == failure
