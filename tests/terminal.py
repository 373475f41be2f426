"""A real terminal for tests: runs a program on a pty, and shows what a person would see at its end."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

CODES = re.compile(r"\x1b\[(\d*)([A-Za-z])|[\r\n]|[^\x1b\r\n]+")


class Terminal:
    """What was written to a terminal, as it came and as it looks."""

    def __init__(self, written: str, columns: int) -> None:
        self.written, self.columns = written, columns

    @property
    def lines(self) -> list[str]:
        """The lines as they stand at the end, after all that was drawn over."""
        rows: list[list[str]] = [[]]
        row = column = 0
        for code in CODES.finditer(self.written):
            text = code.group()
            if text == "\r":
                column = 0
            elif text == "\n":
                row, column = row + 1, column  # the pty writes \r\n for a new line
            elif code.group(2) == "A":
                row = max(0, row - int(code.group(1) or 1))
            elif code.group(2) is None:
                for character in text:
                    if column == self.columns:
                        row, column = row + 1, 0
                    rows.extend([] for _ in range(row + 1 - len(rows)))
                    rows[row].extend(" " * (column + 1 - len(rows[row])))
                    rows[row][column] = character
                    column += 1
            rows.extend([] for _ in range(row + 1 - len(rows)))
        return ["".join(cells).rstrip() for cells in rows]


def run_on_terminal(
    code: str, columns: int = 100, *arguments: str, stdout: int | None = None, folder: Path | None = None
) -> tuple[Terminal, str, int]:
    """Run Python code on a terminal; what it shows there, what it writes to a piped stdout, its exit code."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))  # a new one has no width
    tests = str(Path(__file__).parent)
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=theirs if stdout is None else stdout,
        stderr=theirs,
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": tests,
            "OMP_NUM_THREADS": "1",
            "TERM": "xterm",
            "COLUMNS": str(columns),
        },
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        shown += chunk
    os.close(ours)
    piped = process.communicate()[0] or b""
    return Terminal(shown.decode(), columns), piped.decode(), process.returncode
