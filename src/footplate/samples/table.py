"""Samples on the console: an aligned table that fits the terminal, in any writing system."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

from footplate.voice import is_terminal, say

HIDDEN = frozenset(("correct",))  # shown as a mark, not as a column
WRONG = "x"
GAP = "  "
ELLIPSIS = "..."
JOINERS = "\u200c\u200d"  # used in Persian words and emoji: they take no column
ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
RED, PLAIN = "\x1b[31m", "\x1b[0m"
NARROWEST = 8  # the least width of a column, even if the terminal is too narrow


def print_samples(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print the table on stdout, above the progress bars if there are any."""
    print_table(lambda width, in_color: format_table(title, rows, width, in_color))


def print_table(make: Callable[[int, bool], str]) -> None:
    """Print a table on stdout, made for the width of the terminal and, where it has them, in colours."""
    in_color = is_terminal(sys.stdout) and "NO_COLOR" not in os.environ
    say(make(shutil.get_terminal_size((120, 24)).columns, in_color), sys.stdout)


def format_table(title: str, rows: Sequence[dict[str, Any]], width: int = 100, in_color: bool = False) -> str:
    """The rows as lines of at most `width` columns; a mark comes before wrong predictions."""
    names = [name for name in dict.fromkeys(key for row in rows for key in row) if name not in HIDDEN]
    cells = [[format_value(row.get(name)) for name in names] for row in rows]
    natural = [
        max(display_width(text) for text in (name, *column))
        for name, column in zip(names, zip(*cells, strict=True), strict=True)
    ]
    widths = fit_widths(natural, width - len(WRONG) - len(GAP) * len(names))
    lines = [
        title,
        _join_cells(" ", names, widths),
        _join_cells(" ", ["-" * size for size in widths], widths),
    ]
    for row, texts in zip(rows, cells, strict=True):
        is_wrong = row.get("correct") is False
        # cut a long passage so that the answer in it stays visible
        centers = [format_value(row.get("target")) if name == "context" else "" for name in names]
        shown = [shorten(*cell) for cell in zip(texts, widths, centers, strict=True)]
        line = _join_cells(WRONG if is_wrong else " ", shown, widths)
        lines.append(f"{RED}{line}{PLAIN}" if is_wrong and in_color else line)
    return "\n".join(lines)


def _join_cells(mark: str, texts: Sequence[str], widths: Sequence[int]) -> str:
    padded = [text + " " * (size - display_width(text)) for text, size in zip(texts, widths, strict=True)]
    return GAP.join([mark, *padded]).rstrip()


def format_value(value: Any) -> str:
    """One value of a row as text without line breaks."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else escape(str(value))


def escape(text: str) -> str:
    """The text with escapes for characters that move the cursor, change the color or the direction."""
    # without composing, the parts of a Korean letter would be counted one by one: columns would not align
    composed = unicodedata.normalize("NFC", text)
    return "".join(_escape_character(character) for character in composed)


def _escape_character(character: str) -> str:
    if character in ESCAPES:
        return ESCAPES[character]
    is_control = (
        unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in JOINERS
    )
    return character.encode("unicode_escape").decode("ascii") if is_control else character


def display_width(text: str) -> int:
    """How many terminal columns a text takes: two for East Asian characters and emoji, none for accents."""
    return sum(_character_width(character) for character in text)


def _character_width(character: str) -> int:
    if character.isascii():
        return 1
    if character in JOINERS or unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shorten(text: str, width: int, around: str = "") -> str:
    """The text in at most `width` columns: cut in its middle, or on both sides of `around`."""
    if display_width(text) <= width:
        return text
    if width <= len(ELLIPSIS):
        return ELLIPSIS[:width]
    room = width - len(ELLIPSIS)
    has_room = display_width(around) + 2 * len(ELLIPSIS) <= width
    found = text.find(around) if around and has_room else -1
    if found < 0:
        head = _take(text, room - room // 2)
        return head + ELLIPSIS + _take(text[::-1], room - display_width(head))[::-1]
    margin = (width - display_width(around) - 2 * len(ELLIPSIS)) // 2
    start = found - len(_take(text[:found][::-1], margin))
    if start <= len(ELLIPSIS):  # everything before `around` fits
        return _take(text, room) + ELLIPSIS
    rest = text[start:]
    if display_width(rest) <= room:  # everything after it fits
        return ELLIPSIS + _take(text[::-1], room)[::-1]
    return ELLIPSIS + _take(rest, room - len(ELLIPSIS)) + ELLIPSIS


def _take(text: str, width: int) -> str:
    """As many characters from the start as fit in `width` columns."""
    for index, character in enumerate(text):
        width -= _character_width(character)
        if width < 0:
            return text[:index]
    return text


def fit_widths(natural: Sequence[int], room: int) -> list[int]:
    """Column widths with a sum of at most `room`: the widest columns are made narrower first, equally."""
    widths = list(natural)
    while widths and sum(widths) > room and max(widths) > NARROWEST:
        widest = max(widths)
        shared = [index for index, size in enumerate(widths) if size == widest]
        next_size = max((size for size in widths if size < widest), default=0)
        excess = -(-(sum(widths) - room) // len(shared))  # rounded up
        for index in shared:
            widths[index] = max(next_size, widest - excess, NARROWEST)
    return widths
