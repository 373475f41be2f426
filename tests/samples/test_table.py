"""Tables that fit, in any script, whatever the rows hold."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import sys
import unicodedata
from typing import Any

import pytest

from footplate.samples.table import display_width, escape, fit_widths, format_table, print_samples, shorten

SEOUL = "서울은 어느 나라의 수도인가?"
ROWS = [
    {"row": 3, "input": SEOUL, "target": "대한민국", "prediction": "대한민국", "correct": True},
    {"row": 41, "input": "東京はどこ?", "target": "日本", "prediction": "中国", "correct": False},
    {"row": 7, "input": "What is the score?", "target": None, "prediction": 0.123456789},
]

EXPECTED = """\
Samples (eval) at step 50
   row  input                         target    prediction
   ---  ----------------------------  --------  ----------
   3    서울은 어느 나라의 수도인가?  대한민국  대한민국
x  41   東京はどこ?                   日本      中国
   7    What is the score?            -         0.1235"""


def test_korean_japanese_and_english_stand_in_line():
    assert format_table("Samples (eval) at step 50", ROWS, width=100) == EXPECTED


NARROW = """\
Samples
   row  input         target    prediction
   ---  ------------  --------  ----------
   3    서울...인가?  대한민국  대한민국
x  41   東京はどこ?   日本      中国
   7    What ...ore?  -         0.1235"""


def test_long_text_is_cut_in_its_middle_to_fit():
    table = format_table("Samples", ROWS, width=42)
    assert table == NARROW
    assert max(display_width(line) for line in table.splitlines()) <= 42


@pytest.mark.parametrize("width", [30, 40, 57, 80, 200])
def test_no_line_is_wider_than_the_terminal(width):
    rows = [{"input": "긴 문장 " * 90, "target": "x" * 300, "prediction": "é" * 50, "score": 0.5}]
    table = format_table("title", rows, width)
    assert all(display_width(line) <= max(width, 45) for line in table.splitlines())


def test_control_characters_newlines_and_escapes_are_written_out():
    hostile = "a\nb\tc\rd\x1b[31mred\x1b[0m\x07\u202eevil\u2028\x9b1m\udc80"
    shown = escape(hostile)
    assert shown == "a\\nb\\tc\\rd\\x1b[31mred\\x1b[0m\\x07\\u202eevil\\u2028\\x9b1m\\udc80"
    table = format_table("title", [{"input": hostile, "prediction": "fine"}], width=200)
    assert len(table.splitlines()) == 4
    assert "\x1b" not in table


def test_accents_joiners_and_pieces_of_korean_take_no_room_of_their_own():
    assert display_width("e\u0301") == 1
    assert display_width("नम\u200dस्ते") == 4
    in_pieces = unicodedata.normalize("NFD", "한국어")
    assert display_width(escape(in_pieces)) == 6
    assert display_width("🙂") == 2


def test_a_text_that_fits_is_not_touched():
    assert shorten("abc", 3) == "abc"
    assert shorten("abcdefgh", 7) == "ab...gh"
    assert shorten("가나다라마", 8) == "가...마"  # half a character cannot be shown
    assert shorten("abcdef", 2) == ".."


def test_a_passage_is_cut_around_the_answer():
    passage = "x" * 100 + " ANSWER " + "y" * 100
    middle = shorten(passage, 30, around="ANSWER")
    assert middle == "...xxxxxxxx ANSWER yyyyyyyy..."
    assert shorten("ANSWER" + "y" * 100, 20, around="ANSWER") == "ANSWER" + "y" * 11 + "..."
    assert shorten("x" * 100 + "ANSWER", 20, around="ANSWER") == "..." + "x" * 11 + "ANSWER"
    for width in range(4, 40):
        assert display_width(shorten(passage, width, around="ANSWER")) <= width
        assert display_width(shorten("가나다 " * 40, width, around="나다")) <= width
    row = {"input": "who?", "context": passage, "target": "ANSWER", "prediction": "y"}
    assert "ANSWER" in format_table("title", [row], width=70).splitlines()[-1].split("who?")[1].split("  ")[1]


def test_the_widest_columns_give_way_first():
    assert fit_widths([5, 10, 100], 1000) == [5, 10, 100]
    assert fit_widths([5, 10, 100], 65) == [5, 10, 50]
    assert fit_widths([5, 90, 100], 65) == [5, 30, 30]
    assert fit_widths([50, 50], 4) == [8, 8]


def test_rows_with_different_columns_share_a_table():
    table = format_table("title", [{"input": "a"}, {"input": "b", "note": "c"}], width=50)
    assert table.splitlines()[1].split() == ["input", "note"]
    assert table.splitlines()[3].split() == ["a", "-"]


def test_a_console_that_cannot_show_korean_gets_escapes(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    print_samples("title", ROWS)
    assert "\\uc11c\\uc6b8" in stream.buffer.getvalue().decode("ascii")


def on_a_terminal(monkeypatch: Any, rows: list[dict[str, Any]]) -> str:
    """What a process prints whose output is a terminal."""
    child, leader = pty.fork()
    if child == 0:
        monkeypatch.setattr(sys, "stdout", os.fdopen(1, "w"))
        print_samples("title", rows)
        os._exit(0)
    seen = b""
    with contextlib.suppress(OSError):  # how Linux says that the other side is closed
        while chunk := os.read(leader, 4096):
            seen += chunk
    assert os.waitpid(child, 0)[1] == 0
    os.close(leader)
    return seen.decode()


def test_a_wrong_row_is_red_on_a_terminal_and_nowhere_else(monkeypatch, capsys):
    rows = [{"prediction": "a", "correct": False}, {"prediction": "b", "correct": True}]
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[31mx  a\x1b[0m\r\n   b" in on_a_terminal(monkeypatch, rows)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "x  a\r\n   b" in on_a_terminal(monkeypatch, rows)
    monkeypatch.delenv("NO_COLOR")
    print_samples("title", rows)
    assert "\x1b" not in capsys.readouterr().out


def test_the_table_stands_above_the_bars(capsys):
    from tqdm import tqdm

    with tqdm(total=3, file=sys.stdout, ncols=40, mininterval=0) as bar:
        bar.update(1)
        print_samples("the title", [{"prediction": "a"}])
    printed = capsys.readouterr().out
    before, after = printed.split("the title")
    assert before.endswith("\r")  # the bar was wiped first
    assert "1/3" in after  # and is drawn again below
