"""Lengths of time: what people write, and what is refused in words."""

from __future__ import annotations

import numpy as np
import pytest

from footplate.arguments import HfArgumentParser, TrainingArguments
from footplate.arguments.durations import parse_duration

READ = [
    ("30min", 1800.0),
    ("7h50m", 28200.0),
    ("7h 50min", 28200.0),
    ("90s", 90.0),
    ("1d2h", 93600.0),
    ("1 day 2 hours 3 minutes 4 seconds", 93784.0),
    ("1.5H", 5400.0),
    (".5m", 30.0),
    ("3600", 3600.0),
    ("0.25", 0.25),
    (90, 90.0),
    (0.5, 0.5),
    (np.float32(2.0), 2.0),
]
REFUSED = [
    *(
        "",
        " ",
        "soon",
        "h",
        "5x",
        "5 parsecs",
        "7h90",
        "50m7h",
        "1h1h",
        "1m 30min",
        "-5m",
        "-1",
        "1e3",
        "inf",
    ),
    *("0s", 0, -1.0, float("nan"), float("inf"), True, False, None, [5], "5m!", "m5"),
]


@pytest.mark.parametrize(("text", "seconds"), READ, ids=str)
def test_what_people_write_is_read(text, seconds):
    assert parse_duration(text) == seconds
    assert type(parse_duration(text)) is float


@pytest.mark.parametrize("text", REFUSED, ids=repr)
def test_what_says_no_time_is_refused_in_words(text):
    with pytest.raises(ValueError, match=r"max_time=.* is not a length of time.*'7h50m'"):
        parse_duration(text, "max_time")


def test_the_arguments_give_seconds():
    args = TrainingArguments("runs", save_every="30min", max_time=90)
    assert (args.save_every_seconds, args.max_time_seconds) == (1800.0, 90.0)
    assert (args.save_every, args.max_time) == ("30min", 90)
    bare = TrainingArguments("runs")
    assert bare.save_every_seconds is bare.max_time_seconds is None
    assert bare.hang_seconds == 600.0
    assert TrainingArguments("runs", hang_timeout=None).hang_seconds is None


def test_the_command_line_takes_both_forms():
    words = ["--output_dir", "runs", "--save_every", "30min", "--max_time", "3600", "--no_save_in_background"]
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(words)
    assert (args.save_every_seconds, args.max_time_seconds, args.save_in_background) == (
        1800.0,
        3600.0,
        False,
    )
