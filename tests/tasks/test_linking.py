"""Tables that name files: whole paths, and rows that are prepared anew once a file has changed."""

from __future__ import annotations

import os

from datasets import Dataset, Image

from footplate.tasks.common.linking import link_files

ROWS = [{"name": "a.png", "label": 1}, {"name": None, "label": 2}]


def test_names_become_whole_paths_and_columns_keep_their_order(tmp_path):
    linked = link_files(Dataset.from_list(ROWS), "name", str(tmp_path))
    assert linked[:] == {"name": [str(tmp_path / "a.png"), None], "label": [1, 2]}
    assert linked.column_names == ["name", "label"]
    stream = link_files(Dataset.from_list(ROWS).to_iterable_dataset(), "name", str(tmp_path))
    assert list(stream) == [{"name": str(tmp_path / "a.png"), "label": 1}, {"name": None, "label": 2}]


def test_bytes_in_the_table_stay_as_they_are(tmp_path):
    rows = Dataset.from_list([{"name": {"bytes": b"123", "path": None}}])
    assert link_files(rows, "name", str(tmp_path)) is rows
    rows = rows.cast_column("name", Image())  # which cannot be opened: nothing is decoded
    assert link_files(rows, "name", str(tmp_path)) is rows


def test_a_file_that_changes_makes_another_table(tmp_path):
    file = tmp_path / "a.png"
    file.write_bytes(b"one")
    rows = Dataset.from_list(ROWS)
    before = link_files(rows, "name", str(tmp_path))._fingerprint
    assert link_files(rows, "name", str(tmp_path))._fingerprint == before
    os.utime(file, ns=(1, 1))
    assert link_files(rows, "name", str(tmp_path))._fingerprint != before
