"""A rank that stands still is named with all stacks, and ranks that differ are refused."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path

import pytest
from torch.distributed import HashStore

import ranks
from footplate.distributed.board import Board
from footplate.distributed.hang import HangWatch, Watched

SCRIPT = Path(__file__).with_name("agreeing_processes.py")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What two ranks printed, and what each of them saw."""
    folder = tmp_path_factory.mktemp("ranks")
    result = ranks.torchrun(SCRIPT, str(folder))
    assert result.code == 0, result.output
    return result.output, [json.loads((folder / f"{number}.json").read_text()) for number in range(2)], folder


def test_a_hang_is_reported_with_the_rank_that_stands_and_training_continues(run):
    output, _, _ = run
    first = next(line for line in output.splitlines() if "Training does not move" in line)
    assert first.startswith("footplate: error: Training does not move: rank 1 (")
    assert re.search(r"has stood at step 2 in 'data' for [2-4] s; rank 0 \(", first)
    assert "waits at step 2 in 'backward'" in first


def test_the_report_holds_the_stacks_of_all_ranks(run):
    output, _, _ = run
    report = output.split("Training does not move")[1]
    of_second, of_first = report.split("---- rank 1 ----")[1].split("---- rank 0 ----")
    assert "time.sleep(5)" in of_second
    assert "torch.distributed.all_reduce(total)" in of_first
    assert "footplate-hang" not in report


def test_reports_come_at_most_once_per_time(run):
    output, _, _ = run
    assert 1 <= output.count("Training does not move") <= 3  # 5 seconds, one per 1.5


def test_ranks_that_differ_get_the_same_refusal(run):
    _, (first, second), _ = run
    assert first["same"] == second["same"] == ""
    assert first["different"] == second["different"]
    assert "  arguments: lr: 0.1 on rank 0 and 0.05 on rank 1" in first["different"]
    assert "  rows: 29 on rank 0 and 30 on rank 1" in first["different"]
    assert "seed" not in first["different"]
    assert "version" not in first["different"]
    assert first["different"].endswith("Start every rank with the same arguments, data, model and code.")


def test_a_folder_that_is_not_shared_is_named_on_all_ranks(run):
    _, seen, folder = run
    for number, answers in enumerate(seen):
        assert answers["one launcher"] is None
        assert answers["shared"] is None
        assert f"only-{number} is not shared between the hosts" in answers["apart"]
        assert "(rank 1)" in answers["apart"]
        assert "Rank 0 on" in answers["no folder"]
        assert "cannot write into" in answers["no folder"]
    assert not (folder / "nowhere").exists()
    assert list((folder / "shared").iterdir()) == []


# ---- parts, without processes ----


def look(watched, beats, seconds):
    """Let every rank look again and again for a while."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for one, beat in zip(watched, beats, strict=True):
            one.look(beat)
        time.sleep(0.02)


@pytest.fixture
def three():
    store = HashStore()
    return [Watched(Board(store, "test"), number, 3, 0.2, 0.02) for number in range(3)]


def test_a_process_that_is_gone_is_named(three, caplog):
    beats = [(7, "backward", 3)] * 3
    look(three, beats, 0.1)
    look(three[:2], beats[:2], 1.0)
    assert "rank 2 (" in caplog.messages[0]
    assert (
        "no longer answers: ended or stopped, last seen at step 7 in 'backward'; ranks 0-1 wait"
        in caplog.messages[0]
    )


def test_the_second_rank_reports_if_the_first_is_gone(three, caplog):
    beats = [(7, "backward", 3)] * 3
    look(three, beats, 0.1)
    look(three[1:], beats[1:], 1.0)
    assert "Training does not move: rank 0 (" in caplog.messages[0]
    assert "ranks 1-2 wait" in caplog.messages[0]


def test_ranks_at_the_same_place_are_not_called_behind(three, caplog):
    look(three, [(7, "backward", 3)] * 3, 1.0)
    assert "no rank is behind the others: ranks 0-2 have stood at step 7 in 'backward'" in caplog.messages[0]
    assert caplog.messages[0].count("MainThread:") == 1  # stacks that are the same are shown once


def test_of_ranks_in_one_step_the_one_with_fewer_beats_is_behind(three, caplog):
    look(three, [(7, "save", 5), (7, "evaluate", 4), (7, "save", 5)], 1.0)
    assert "rank 1 (" in caplog.messages[0].split(";")[0]
    assert "ranks 0 and 2 wait at step 7 in 'save'" in caplog.messages[0]


def test_ranks_that_move_are_not_reported(three, caplog):
    for step in range(20):
        look(three, [(step, "data", 0) for _ in three], 0.03)
    assert caplog.messages == []


def test_a_rank_alone_has_no_thread_and_a_beat_costs_little():
    before = threading.active_count()
    with HangWatch(1.0) as watch:
        assert threading.active_count() == before
        start = time.thread_time()
        for step in range(20_000):
            watch.beat(step, "data")
        # 0.2 microseconds; ten times as much where coverage traces each line
        assert (time.thread_time() - start) / 20_000 < 1e-5
