"""Exact match and F1 of answers by length, as a page shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from footplate.report.plain import as_number, shorten
from footplate.report.sets import Block, SetNotes, read_count, read_rows

MOST_BUCKETS = 20
TABLES = ("answer", "question", "context")


class AnswerNotes(SetNotes):
    """The scores by length of all sets."""

    def __init__(self) -> None:
        super().__init__(read_answers, lambda block: float(block["f1"]))


def read_answers(event: Mapping[str, Any]) -> Block | None:
    """The scores in an event; None if a value is wrong."""
    exact, f1 = as_number(event.get("exact_match")), as_number(event.get("f1"))
    num_items, given = read_count(event.get("num_items")), event.get("tables")
    if exact is None or f1 is None or num_items is None or not isinstance(given, dict):
        return None
    found = {name: _read_table(given.get(name)) for name in TABLES}
    tables = {name: rows for name, rows in found.items() if rows}
    return {"num_items": num_items, "exact_match": exact, "f1": f1, "tables": tables} if tables else None


def _read_table(value: Any) -> list[list[Any]] | None:
    rows = read_rows(value, 4, MOST_BUCKETS)
    if rows is None or not all(_is_bucket(row) for row in rows):
        return None
    return [[shorten(row[0], 40), *row[1:]] for row in rows]


def _is_bucket(row: list[Any]) -> bool:
    scores = [as_number(value) for value in row[2:]]
    are_shares = all(score is not None and 0 <= score <= 100 for score in scores)
    return isinstance(row[0], str) and read_count(row[1]) is not None and are_shares
