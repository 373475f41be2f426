"""The trials of a search on disk: a line for the search, then one for each trial that has ended."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from footplate.disk import open_append, open_regular, parse_json, read_lines
from footplate.search.notes import drop_notes, read_notes
from footplate.search.outcomes import Outcome

FOLDER_NAME, FILE_NAME = "search", "trials.jsonl"
MAX_LINE_BYTES = 2**24


class TrialRecord:
    """The file of a search, read once and then appended to: a kill loses at most the trial under way.

    Args:
        output_dir: The folder of the whole search.
        about: What the search is; another one than that of the file begins a new file.
        resumes: Whether trials that the file has count.
    """

    def __init__(self, output_dir: str, about: dict[str, Any], resumes: bool = True) -> None:
        self.output_dir = output_dir
        self.folder = os.path.join(output_dir, FOLDER_NAME)
        self.path = os.path.join(self.folder, FILE_NAME)
        self.outcomes: list[Outcome] = []
        self.moved_to: str | None = None
        about = json.loads(json.dumps(about, default=str))  # as it is read back
        cut_partial_line(self.path)
        found = read_record(self.path)
        if found is not None and (not resumes or found[0] != about):
            self.moved_to = set_aside(output_dir, found[1])
            found = None
        os.makedirs(self.folder, exist_ok=True)
        self.is_resumed = found is not None
        if found is not None:
            self.outcomes = found[1]
            self._take_notes()
        else:
            self._append({"search": about})

    def add(self, outcome: Outcome) -> None:
        """Write that a trial has ended; it is on the disk when this returns."""
        self._append(outcome.to_line())
        self.outcomes.append(outcome)

    def find(self, number: int) -> Outcome | None:
        """How the trial with this number ended; None if it has not."""
        return next((outcome for outcome in self.outcomes if outcome.number == number), None)

    def clear_unfinished(self, folder: str) -> None:
        """Remove what a killed process left of a trial: it is made again from its start."""
        names = {outcome.folder for outcome in self.outcomes}
        path = os.path.join(self.output_dir, folder)
        inside = os.path.dirname(os.path.abspath(path)) == os.path.abspath(self.output_dir)
        if self.is_resumed and folder not in names and inside:
            shutil.rmtree(path, ignore_errors=True)

    def _take_notes(self) -> None:
        """Add the failures that other ranks have noted, unless the first one has written them itself."""
        for outcome in read_notes(self.folder):
            if self.find(outcome.number) is None:
                self.add(outcome)
        drop_notes(self.folder)

    def _append(self, line: dict[str, Any]) -> None:
        descriptor = open_append(self.path)
        try:
            os.write(descriptor, json.dumps(line, default=str).encode("utf-8") + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_record(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[Outcome]] | None:
    """What a search is and how its trials ended; None without such a file.

    A line that a kill has cut is left out.
    """
    about: dict[str, Any] | None = None
    outcomes: dict[int, Outcome] = {}
    with contextlib.suppress(FileNotFoundError), open_regular(path) as file:
        for text in read_lines(file, MAX_LINE_BYTES):
            try:
                line = parse_json(text)
            except ValueError:
                continue
            if isinstance(line, dict) and isinstance(line.get("search"), dict) and about is None:
                about = line["search"]
            elif isinstance(line, dict) and isinstance(line.get("number"), int) and "state" in line:
                outcomes[line["number"]] = Outcome.from_line(line)
    return None if about is None else (about, [outcomes[number] for number in sorted(outcomes)])


def read_about(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """What a search is, from the first line of its file; None without such a file."""
    with contextlib.suppress(FileNotFoundError, ValueError), open_regular(path) as file:
        line = parse_json(next(read_lines(file, MAX_LINE_BYTES), b""))
        if isinstance(line, dict) and isinstance(line.get("search"), dict):
            about: dict[str, Any] = line["search"]
            return about
    return None


def cut_partial_line(path: str) -> None:
    """Remove a last line without an end, which a kill has cut: the next line must not run into it."""
    with contextlib.suppress(FileNotFoundError), open(path, "r+b") as file:
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            file.truncate(whole)


def set_aside(output_dir: str, outcomes: list[Outcome]) -> str:
    """Move an earlier search and the folders of its trials into a folder of their own; return its path."""
    number = 1
    while os.path.exists(target := os.path.join(output_dir, f"{FOLDER_NAME}-{number}")):
        number += 1
    os.rename(os.path.join(output_dir, FOLDER_NAME), target)
    for outcome in outcomes:
        source = Path(output_dir, outcome.folder or "")
        if outcome.folder and source.is_dir() and source.parent == Path(output_dir):
            os.rename(source, os.path.join(target, outcome.folder))
    return target
