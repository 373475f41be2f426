"""Tables that name files: whole paths, and what tells that a file has changed."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any


def link_files(rows: Any, column: str, folder: str) -> Any:
    """The rows with whole paths; what is prepared of them is prepared anew once a file has changed.

    Args:
        rows: Those of a table.
        column: Names files, from a folder; what is no name, such as bytes, stays as it is.
        folder: That folder.
    """

    def link(value: Any) -> Any:
        return os.path.join(folder, str(value)) if isinstance(value, (str, int)) else value

    if hasattr((rows.features or {}).get(column), "decode"):  # pictures or sounds in the table itself
        return rows
    if not hasattr(rows, "__len__"):
        return rows.map(lambda row: {column: link(row[column])})
    values = rows[column]
    if not any(isinstance(value, (str, int)) for value in values):
        return rows
    paths = [link(value) for value in values]
    key = json.dumps([rows._fingerprint, column, [stamp_of(path) for path in paths]])
    fingerprint = hashlib.sha256(key.encode()).hexdigest()[:32]
    names, linked = rows.column_names, f"{column} of a file"
    rows = rows.add_column(linked, paths, new_fingerprint=fingerprint)
    return rows.remove_columns(column).rename_column(linked, column).select_columns(names)


def stamp_of(path: str | None) -> list[Any]:
    """What changes when a file changes."""
    try:
        found = Path(path or "").stat()
    except OSError:
        return [path]
    return [path, found.st_size, found.st_mtime_ns]
