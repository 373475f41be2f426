"""Trials on disk: nothing but the last line is ever at risk."""

from __future__ import annotations

from pathlib import Path

import pytest

from footplate.search.outcomes import Outcome
from footplate.search.record import TrialRecord, read_record

ABOUT = {"backend": "random", "directions": ["minimize"]}


def filled(folder: Path, count: int = 3) -> TrialRecord:
    record = TrialRecord(str(folder), ABOUT)
    for number in range(count):
        record.add(Outcome(number, "complete", {"a": number / 3}, [float(number)], 4, f"run-{number}"))
        (folder / f"run-{number}").mkdir()
    return record


def test_a_second_search_reads_what_the_first_one_wrote(tmp_path):
    first = filled(tmp_path)
    second = TrialRecord(str(tmp_path), ABOUT)
    assert second.is_resumed
    assert second.outcomes == first.outcomes
    assert second.find(1) == first.outcomes[1]
    assert second.find(9) is None


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_a_line_that_a_kill_has_cut_is_left_out_and_the_next_one_is_whole(tmp_path, cut):
    path = Path(filled(tmp_path).path)
    path.write_bytes(path.read_bytes()[:-cut])
    again = TrialRecord(str(tmp_path), ABOUT)
    assert [outcome.number for outcome in again.outcomes] == [0, 1]
    again.add(Outcome(2, "failed", error="ValueError: no\nnumber"))
    found = read_record(path)
    assert found is not None
    assert [(outcome.number, outcome.state) for outcome in found[1]] == [
        (0, "complete"),
        (1, "complete"),
        (2, "failed"),
    ]
    assert found[1][2].error == "ValueError: no\nnumber"


def test_another_search_in_the_same_folder_moves_the_first_one_aside(tmp_path):
    filled(tmp_path)
    other = TrialRecord(str(tmp_path), {**ABOUT, "directions": ["maximize"]})
    assert other.outcomes == []
    assert other.moved_to == str(tmp_path / "search-1")
    assert (tmp_path / "search-1" / "run-2").is_dir()
    assert not (tmp_path / "run-0").exists()
    anew = TrialRecord(str(tmp_path), {**ABOUT, "directions": ["maximize"]}, resumes=False)
    assert anew.moved_to == str(tmp_path / "search-2")


def test_only_the_folder_of_an_unfinished_trial_is_removed(tmp_path):
    filled(tmp_path)
    record = TrialRecord(str(tmp_path), ABOUT)
    (tmp_path / "run-3").mkdir()
    outside = tmp_path.parent / "beside"
    outside.mkdir(exist_ok=True)
    for name in ("run-0", "run-3", "../beside", "."):
        record.clear_unfinished(name)
    assert sorted(path.name for path in tmp_path.glob("run-*")) == ["run-0", "run-1", "run-2"]
    assert outside.is_dir()
    assert tmp_path.is_dir()


def test_a_first_search_removes_nothing(tmp_path):
    (tmp_path / "run-0").mkdir()
    TrialRecord(str(tmp_path), ABOUT).clear_unfinished("run-0")
    assert (tmp_path / "run-0").is_dir()
