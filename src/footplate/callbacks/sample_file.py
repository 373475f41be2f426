"""Samples on disk: one JSON line per row, the same file whether or not the run was interrupted."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

SAMPLES_NAME = "samples.jsonl"


class SampleFile:
    """Appends blocks of rows, one block for each step and source, and forgets those of a future undone.

    Args:
        folder: Where `samples.jsonl` is.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder, SAMPLES_NAME)
        self._last_steps: dict[str, int] = {}  # of the newest block of each source
        self._has_warned = False

    def begin_run(self, step: int) -> None:
        """Keep what a run had written up to the step it goes on from; nothing where it starts anew."""
        self._last_steps = {}
        if not self.path.exists():
            return
        try:
            whole = self.path.read_bytes()
            kept = b"".join(self._lines_until(step, whole)) if step > 0 else b""
            if kept != whole:
                draft = self.path.with_name(f".{SAMPLES_NAME}.{os.getpid()}")
                draft.write_bytes(kept)
                os.replace(draft, self.path)
        except OSError as error:
            self._warn(error)

    def _lines_until(self, step: int, whole: bytes) -> Iterator[bytes]:
        for line in whole.splitlines(keepends=True):
            entry = _read_line(line)
            if entry is not None and entry["step"] <= step:
                self._last_steps[str(entry.get("source"))] = entry["step"]
                yield line

    def append(self, step: int, source: str, rows: Sequence[dict[str, Any]]) -> None:
        """Write a block at once, unless this step and source have one; a full disk costs the block alone."""
        if self._last_steps.get(source) == step or not rows:
            return
        where = {"step": step, "source": source}  # a row that names these has no say in them
        lines = [json.dumps(where | row | where, ensure_ascii=False) for row in rows]
        # half a surrogate pair, which a tokenizer may give, is no UTF-8: it stays a JSON escape
        block = ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")
        try:
            self._write(block)
        except OSError as error:
            self._warn(error)
        self._last_steps[source] = step

    def _write(self, block: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            size = os.fstat(file).st_size
            num_written = os.write(file, block)
            if num_written != len(block):
                os.ftruncate(file, size)  # no half line for the next block to grow on
                raise OSError(f"only {num_written} of {len(block)} bytes were written")
        finally:
            os.close(file)

    def _warn(self, error: OSError) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning("Samples could not be written to %s (%s); training goes on.", self.path, error)


def _read_line(line: bytes) -> dict[str, Any] | None:
    """A line of the file, or None where it is not one: cut short, or not ours."""
    try:
        entry = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    is_ours = isinstance(entry, dict) and isinstance(entry.get("step"), int)
    return entry if is_ours else None
