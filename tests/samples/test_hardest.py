"""What was found of the hardest rows: numbers about all rows, a table, plain values, a file."""

from __future__ import annotations

import json
import math
import os

import numpy as np
import pytest

from footplate.samples import hardest
from footplate.samples.hardest import HardestRows, write_hardest


def find(losses, rows=(), **values):
    return HardestRows(list(rows), np.arange(len(losses)) * 2, np.array(losses, dtype=float), **values)


EVEN = [float(i) for i in range(101)]
ROW = {
    "row": 7,
    "loss": 4.25,
    "input": "some text",
    "target": "a",
    "prediction": "b",
    "correct": False,
    "outlier": True,
}


def test_quantiles_are_those_of_all_rows():
    found = find(EVEN)
    assert found.quantiles == {"min": 0, "q1": 25, "median": 50, "q3": 75, "p99": 99, "max": 100}
    assert found.mean == 50
    assert found.limit == 75 + 3 * 50
    assert found.outliers == []


def test_outliers_lie_three_quartile_ranges_above_and_the_worst_comes_first():
    found = find([*EVEN, 300.0, 1000.0, 200.0])
    assert found.outliers == [204, 202]  # the numbers of the rows, not their places


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_losses_that_are_not_finite_are_outliers_and_in_no_mean(odd):
    found = find([odd, *EVEN, 1000.0])
    assert found.outliers == [0, 204]
    assert found.num_nonfinite == 1
    assert found.quantiles["median"] == 50.5
    assert "1 not finite" in found.describe()


def test_of_no_finite_loss_there_are_no_numbers():
    found = find([math.nan, math.nan])
    assert (found.mean, found.limit, found.quantiles) == (None, None, {})
    assert found.outliers == [0, 2]
    assert found.to_note()["bins"] == []
    assert found.describe() == "The hardest of 2 rows, 2 not finite (one pass, 0.0 s)"
    assert find([]).describe() == "The hardest of 0 rows (one pass, 0.0 s)"


def test_rows_without_a_label_are_named_apart():
    found = find(EVEN, total=110, num_unlabelled=9)
    assert found.describe().startswith("The hardest of 101 of 110 rows: median loss 50")
    assert "0 outliers above 225, 9 without a label that counts (" in found.describe()
    assert found.to_note()["num_unlabelled"] == 9


def test_rows_of_one_loss_have_no_bins():
    assert find([1.0, 1.0]).to_note()["bins"] == []


def test_it_prints_as_a_table():
    found = find(EVEN, [ROW, {**ROW, "row": 8}], total=5000, seconds=1.25)
    lines = repr(found).splitlines()
    assert lines[0] == (
        "The hardest of 101 of 5,000 rows: median loss 50, mean 50, 0 outliers above 225 (one pass, 1.2 s)"
    )
    assert lines[1].split() == ["row", "loss", "input", "target", "prediction"]
    assert lines[3].split() == ["x", "7", "4.25", "some", "text", "a", "b"]
    assert str(found) == repr(found)
    assert "8" not in found.format(max_rows=1).split("prediction")[1]


def test_a_pass_that_ended_early_says_so():
    assert "ended early" in find(EVEN, is_whole=False).describe()
    assert "ended early" not in find(EVEN).describe()


def test_plain_values_are_strict_json():
    found = find([math.nan, *EVEN], [{**ROW, "loss": math.nan}])
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["rows"][0]["loss"] == "nan"
    assert told["num_rows"] == 102
    assert told["quantiles"]["median"] == 50


def test_a_note_is_bounded():
    rows = [{**ROW, "input": "x" * 100_000} for _ in range(500)]
    note = find(EVEN, rows).to_note()
    assert len(note["rows"]) == hardest.MAX_NOTED_ROWS
    assert len(json.dumps(note, allow_nan=False)) < 200_000
    assert sum(note["bins"]) == 101
    assert note["edges"] == [0, 100]


def test_the_file_has_a_line_for_each_row_and_nothing_cut(tmp_path):
    rows = [{**ROW, "input": "x" * 5000}, {**ROW, "input": "half a pair \ud83d", "loss": math.inf}]
    path = write_hardest(find(EVEN, rows), tmp_path / "new", 30)
    first, second = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert first == {"step": 30, **ROW, "input": "x" * 5000}
    assert second["loss"] == "inf"
    write_hardest(find(EVEN, [ROW]), tmp_path / "new", 60)
    (only,) = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(only)["step"] == 60
    assert os.listdir(path.parent) == ["hardest_rows.jsonl"]


def test_a_file_that_cannot_be_written_leaves_the_earlier_one(tmp_path, monkeypatch):
    path = write_hardest(find(EVEN, [ROW]), tmp_path, 30)
    monkeypatch.setattr(os, "replace", lambda *args: (_ for _ in ()).throw(OSError(28, "disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_hardest(find(EVEN, [ROW]), tmp_path, 60)
    assert json.loads(path.read_text())["step"] == 30
