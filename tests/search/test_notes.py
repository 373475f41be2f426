"""What other ranks note of a failed trial becomes one line of the record, however often it is said."""

from __future__ import annotations

from pathlib import Path

from footplate.search.notes import read_notes, save_note
from footplate.search.outcomes import Outcome
from footplate.search.record import TrialRecord, read_record
from footplate.search.session import Session

ABOUT = {"backend": "random", "directions": ["minimize"]}


def failed(number: int, error: str = "ValueError: no") -> Outcome:
    return Outcome(number, "failed", {"a": 0.5}, folder=f"run-{number}", error=error)


def states(record: TrialRecord) -> list[tuple[int, str, str | None]]:
    lines = read_record(record.path)
    assert lines is not None
    assert Path(record.path).read_text().count("\n") == len(lines[1]) + 1  # one line each
    return [(outcome.number, outcome.state, outcome.error) for outcome in lines[1]]


def test_a_noted_failure_is_added_once_and_the_note_is_gone(tmp_path):
    record = TrialRecord(str(tmp_path), ABOUT)
    record.add(Outcome(0, "complete", {}, [1.0]))
    record.add(failed(1, "said by the first rank"))
    for number in (1, 2):
        save_note(record.folder, failed(number))
    for _ in range(2):
        again = TrialRecord(str(tmp_path), ABOUT)
        assert states(again) == [
            (0, "complete", None),
            (1, "failed", "said by the first rank"),
            (2, "failed", "ValueError: no"),
        ]
    assert again.find(2) == failed(2)
    assert read_notes(record.folder) == []


def test_damaged_notes_and_notes_of_another_search_say_nothing(tmp_path):
    record = TrialRecord(str(tmp_path), ABOUT)
    for name, text in (("failed-1.json", "{"), ("failed-2.json", "[]"), ("failed-3.json", '{"number": 4}')):
        Path(record.folder, name).write_text(text)
    assert TrialRecord(str(tmp_path), ABOUT).outcomes == []
    save_note(record.folder, failed(0))
    assert TrialRecord(str(tmp_path), {**ABOUT, "backend": "grid"}).outcomes == []


def test_a_rank_without_the_folder_of_the_search_writes_nothing(tmp_path):
    session = Session(None, None, str(tmp_path / "elsewhere" / "search"))  # type: ignore[arg-type]
    session.tell_alone(failed(1))
    assert list(tmp_path.iterdir()) == []
    Path(tmp_path, "search").mkdir()
    Session(None, None, str(tmp_path / "search")).tell_alone(failed(1))  # type: ignore[arg-type]
    assert read_notes(str(tmp_path / "search")) == [failed(1)]
