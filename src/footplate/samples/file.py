"""Samples on disk: one JSON line per row; an interrupted and resumed run writes the same file."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from footplate.disk import open_append, open_regular, parse_json, read_lines, replacing, set_aside_unless_file
from footplate.resumed import ResumePoint

logger = logging.getLogger(__name__)

SAMPLES_NAME = "samples.jsonl"
MAX_LINE_BYTES = 1 << 26


class SampleFile:
    """Appends one block of rows for each step and source; a resumed run removes the blocks it makes again.

    Args:
        folder: Where `samples.jsonl` is.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        # absolute: a thread of a tracker may change the working folder
        self.path = Path(os.path.abspath(folder), SAMPLES_NAME)
        self._last_steps: dict[str, int] = {}  # of the newest block of each source
        self._has_warned = False

    def begin_run(self, step: int) -> None:
        """Keep the lines up to the step that the run resumes from; a run from the start keeps none."""
        self._last_steps = {}
        if not self.path.exists():
            return
        try:
            set_aside_unless_file(self.path)
            if self.path.exists():
                self._cut(ResumePoint(step))
        except OSError as error:
            self._warn(error)

    def _cut(self, point: ResumePoint) -> None:
        """Drop what the run makes again, line by line, as the file may be larger than memory."""
        with open_regular(self.path) as old:
            num_bytes = os.fstat(old.fileno()).st_size
            kept = 0
            for line, source, step in _read_kept(old, point):
                self._last_steps[source] = step
                kept += len(line)
        if kept == num_bytes:
            return
        # in this order: the old file is closed before it is replaced, as Windows wants it
        with replacing(self.path) as new, open_regular(self.path) as old:
            new.writelines(line for line, _, _ in _read_kept(old, point))

    def append(self, step: int, source: str, rows: Sequence[dict[str, Any]]) -> None:
        """Write a block in one call, unless this step and source have one; a full disk loses only it."""
        if self._last_steps.get(source) == step or not rows:
            return
        where = {"step": step, "source": source}  # these come first, and win over the same names in a row
        lines = [json.dumps(where | row | where, ensure_ascii=False) for row in rows]
        # UTF-8 cannot hold half a surrogate pair, which a tokenizer may give: write it as a JSON escape
        block = ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")
        try:
            self._write(block)
        except OSError as error:
            self._warn(error)
        self._last_steps[source] = step

    def _write(self, block: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = open_append(self.path)
        try:
            size = os.fstat(file).st_size
            num_written = os.write(file, block)
            if num_written != len(block):
                os.ftruncate(file, size)  # else the next block would be appended to half a line
                raise OSError(f"only {num_written} of {len(block)} bytes were written")
        finally:
            os.close(file)

    def _warn(self, error: OSError) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning("Samples could not be written to %s (%s); training goes on.", self.path, error)


def _read_kept(file: BinaryIO, point: ResumePoint) -> Iterator[tuple[bytes, str, int]]:
    """The lines that stay, with source and step; one that a kill cut, or that is not a sample, does not."""
    for line in read_lines(file, MAX_LINE_BYTES) if not point.is_start else ():
        try:
            entry = parse_json(line) if line.endswith(b"\n") else None
        except ValueError:
            continue
        if isinstance(entry, dict) and isinstance(entry.get("step"), int) and point.keeps(entry["step"]):
            yield line, str(entry.get("source")), entry["step"]
