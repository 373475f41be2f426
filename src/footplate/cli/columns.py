"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence


def align(rows: Sequence[Sequence[str]], is_number: Sequence[bool]) -> str:
    """The rows as lines with columns of equal width; numbers stand at the right.

    Args:
        rows: The cells of each row; those of the heads first.
        is_number: Which columns hold numbers.
    """
    printable = [tuple(map(make_printable, row)) for row in rows]
    widths = [max(len(row[column]) for row in printable) for column in range(len(is_number))]
    lines = []
    for row in printable:
        cells = zip(row, widths, is_number, strict=True)
        lines.append(
            "  ".join(cell.rjust(w) if right else cell.ljust(w) for cell, w, right in cells).rstrip()
        )
    return "\n".join(lines)


def make_printable(text: str) -> str:
    """A text without signs that a terminal obeys: a file may name a metric with them."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
