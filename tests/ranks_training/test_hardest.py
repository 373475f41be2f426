"""The hardest rows, found by two processes: each row once, and the same answer on both."""

from __future__ import annotations

import json

import pytest


def test_ranks_share_the_rows_and_have_the_same_answer(launched):
    first, second = launched.found["hardest.shared"]
    assert first == second
    assert first["passes"] == "batches"
    assert first["indices"] == list(range(29))
    assert first["losses"] == pytest.approx(first["alone"], rel=1e-4)
    hardest = sorted(range(29), key=lambda row: -first["alone"][row])[:5]
    assert first["rows"] == hardest
    assert first["top"] == pytest.approx([first["alone"][row] for row in hardest], rel=1e-6)


def test_the_first_rank_writes_the_file_at_the_end_of_the_run(launched):
    (path,) = launched.folder.glob("hardest.shared/**/hardest_rows.jsonl")
    rows = [json.loads(line)["row"] for line in path.read_text().splitlines()]
    assert rows == launched.found["hardest.shared"][0]["rows"]


def test_with_sharded_weights_the_answer_is_the_same(launched):
    whole = launched.found["hardest.shared"][0]
    for found in launched.found["hardest.sharded"]:
        assert found["rows"] == whole["rows"]
        assert found["indices"] == whole["indices"]
        assert found["losses"] == pytest.approx(whole["losses"], rel=1e-4)


def test_where_one_rank_must_pass_rows_alone_all_do(launched):
    first, second = launched.found["hardest.uneven"]
    assert first == second
    assert first["passes"] == "rows"
    assert first["indices"] == list(range(29))
    assert first["rows"][0] == 13


def test_an_error_on_one_rank_is_told_on_both_and_ends_no_training(launched):
    for found in launched.found["hardest.failing"]:
        assert found == {"step": 4, "error": "row 13 has no loss"}
