"""How a trial failed, written down by another rank than the first: that one may be ended before it can."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from footplate.disk import read_json
from footplate.report.files import save_text
from footplate.search.outcomes import Outcome

MAX_BYTES = 1 << 20


def save_note(folder: str, outcome: Outcome) -> None:
    """Leave a note for the next launch; without the folder, as on another machine, and on a full disk, none.

    Args:
        folder: Where the record of the search is.
        outcome: How the trial ended.
    """
    if os.path.isdir(folder):
        with contextlib.suppress(OSError):
            path = os.path.join(folder, f"failed-{outcome.number}.json")
            save_text(json.dumps(outcome.to_line(), default=str), path)


def read_notes(folder: str) -> list[Outcome]:
    """What the notes in a folder say, by number; a damaged one says nothing."""
    found = []
    for path in _list_notes(folder):
        with contextlib.suppress(OSError, ValueError, TypeError):
            outcome = Outcome.from_line(read_json(path, MAX_BYTES))
            if path.name == f"failed-{outcome.number}.json":
                found.append(outcome)
    return sorted(found, key=lambda outcome: outcome.number)


def drop_notes(folder: str) -> None:
    """Remove the notes in a folder, once the record has what they say."""
    for path in _list_notes(folder):
        with contextlib.suppress(OSError):
            path.unlink()


def _list_notes(folder: str) -> list[Path]:
    return list(Path(folder).glob("failed-*.json"))
