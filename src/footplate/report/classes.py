"""How well each class is predicted, as a page shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from footplate.report.plain import as_number, shorten
from footplate.report.sets import Block, SetNotes, read_count, read_counts, read_rows

MOST_LISTED, MOST_CELLS, MOST_BINS = 120, 400, 50
FORMS = ("classes", "tokens", "flags")


class ClassNotes(SetNotes):
    """The summaries of the classes of all sets."""

    def __init__(self) -> None:
        super().__init__(read_classes, lambda block: float(block["macro_f1"]))

    def to_plain(self) -> Any:
        """As for any notes, and the F1 of each class over the run."""
        found = super().to_plain()
        histories = [_list_f1(blocks) for _, blocks, _, _ in self.items()]
        for one, history in zip(found or (), histories, strict=True):
            one["history"] = history
        return found


def read_classes(event: Mapping[str, Any]) -> Block | None:
    """The summary in an event; None if a value is wrong."""
    form, columns, names = event.get("form"), _read_columns(event), event.get("names")
    numbers = {name: read_count(event.get(name)) for name in ("num_items", "num_right", "num_classes")}
    macro_f1 = as_number(event.get("macro_f1"))
    if form not in FORMS or columns is None or macro_f1 is None or None in numbers.values():
        return None
    if not isinstance(names, list) or len(names) != len(columns["listed"]):
        return None
    block = {"form": form, "names": [shorten(str(name), 100) for name in names], "macro_f1": macro_f1}
    return {**block, **columns, **numbers, **_read_cells(event), **_read_bins(event)}


def _read_columns(event: Mapping[str, Any]) -> dict[str, list[int]] | None:
    """The numbers and the counts of the classes; None if they cannot be true."""
    listed = event.get("listed")
    if not isinstance(listed, list) or not 2 <= len(listed) <= MOST_LISTED:
        return None
    columns: dict[str, list[int]] = {}
    for name in ("listed", "support", "predicted", "hits"):
        counts = read_counts(event.get(name), len(listed))
        if counts is None:
            return None
        columns[name] = counts
    most = map(min, columns["support"], columns["predicted"])
    are_true = all(hits <= limit for hits, limit in zip(columns["hits"], most, strict=True))
    return columns if are_true and len(set(columns["listed"])) == len(listed) else None


def _read_cells(event: Mapping[str, Any]) -> Block:
    """The confusions, in class numbers; none if they are wrong."""
    rows = read_rows(event.get("cells"), 3, MOST_CELLS)
    if rows is None or any(read_counts(row, 3) is None for row in rows):
        return {"cells": None, "has_all_cells": False}
    known = set(event["listed"])
    cells = [row for row in rows if row[0] in known and row[1] in known and row[0] != row[1]]
    return {"cells": cells, "has_all_cells": event.get("has_all_cells") is True}


def _read_bins(event: Mapping[str, Any]) -> Block:
    """The calibration; none if it is wrong."""
    rows, error = read_rows(event.get("bins"), 3, MOST_BINS), as_number(event.get("calibration_error"))
    if not rows or error is None or not all(_is_bin(row) for row in rows):
        return {"bins": None, "calibration_error": None}
    return {"bins": rows, "calibration_error": error}


def _is_bin(row: list[Any]) -> bool:
    count, right, confidence = read_count(row[0]), read_count(row[1]), as_number(row[2])
    if count is None or right is None or confidence is None:
        return False
    return right <= count and 0 <= confidence <= 1


def _list_f1(blocks: list[Block]) -> Block:
    """The F1 of the classes of the latest block in all blocks that have them, in per mille."""
    listed = blocks[-1]["listed"]
    columns: list[list[int | None]] = []
    for block in blocks:
        numbers = zip(*(block[name] for name in ("listed", "support", "predicted", "hits")), strict=True)
        scores = {
            number: round(2000 * hits / max(1, support + predicted))
            for number, support, predicted, hits in numbers
        }
        columns.append([scores.get(number) for number in listed])
    lines = [list(line) for line in zip(*columns, strict=True)]
    return {"steps": [block["step"] for block in blocks], "f1": lines}
