"""Text becomes what a type hint asks for, or an error that says why not."""

# ruff: noqa: UP007, UP045 (users write these forms, so they are tested)

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Optional, Union

import pytest

from footplate.arguments.values import find_kind, read_file_value, read_text, read_texts


class Color(Enum):
    RED = "red"
    GREEN = "green"


@dataclass
class Box:
    size: int = 0


class Level(Enum):
    LOW = 1
    HIGH = 2


@pytest.mark.parametrize(
    ("text", "hint", "expected"),
    [
        ("3", int, 3),
        ("1e-4", float, 1e-4),
        ("3", Optional[int], 3),
        ("none", Optional[int], None),
        ("null", int | None, None),
        ("none", str | None, "none"),
        ("abc", str, "abc"),
        ("abc", Any, "abc"),
        ("true", bool, True),
        ("N", bool, False),
        ("yes", bool | None, True),
        ("full_shard", bool | str | None, "full_shard"),
        ("false", bool | str | None, False),
        ("3", Union[int, str], 3),
        ("x3", Union[int, str], "x3"),
        ("3", str | int, 3),
        ("red", Color, "red"),
        ("green", Color | str, "green"),
        ("2", Level, 2),
        ("b", Literal["a", "b"], "b"),
        ("2", Literal[1, 2], 2),
        ("a", Optional[Literal["a"]], "a"),
        ("none", Optional[Literal["a"]], None),
        ("none", Optional[Literal["a", "none"]], "none"),
        ("false", str | Literal[False] | None, False),
        ("me/space", str | Literal[False] | None, "me/space"),
        ('{"a": 1}', dict, {"a": 1}),
        ('{"a": 1}', dict[str, Any] | str | None, {"a": 1}),
        ("file.json", dict[str, Any] | str | None, "file.json"),
        ("a/b", Path, Path("a/b")),
        ('{"size": 1}', Box | dict | None, {"size": 1}),
        ("box.json", Box | str, "box.json"),
    ],
)
def test_text_is_read_by_its_type(text, hint, expected):
    value = read_text(text, find_kind(hint))
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("text", "hint", "words"),
    [
        ("x", int, "invalid literal"),
        ("1.5", int | None, "invalid literal"),
        ("maybe", bool, "'maybe' is neither true nor false"),
        ("rad", Color, "'rad' is not known. Did you mean 'red'"),
        ("c", Literal["a", "b"], "Choose one of"),
        ("{a", dict, "is not a JSON object"),
        ("[1]", dict[str, Any], "is JSON, but not a JSON object"),
    ],
)
def test_text_that_is_no_value_says_why(text, hint, words):
    with pytest.raises(ValueError, match=words):
        read_text(text, find_kind(hint))


@pytest.mark.parametrize(
    ("texts", "hint", "expected"),
    [
        (["1", "2"], list[int], [1, 2]),
        ([], list[int], []),
        (["a"], list[str], ["a"]),
        (["a", "b"], list, ["a", "b"]),
        (["a"], str | list[str] | None, "a"),
        (["a", "b"], str | list[str] | None, ["a", "b"]),
        (["weight"], str | list[float] | None, "weight"),
        (["0.5"], str | list[float] | None, [0.5]),
        (["[0.5, 1]"], str | list[float] | None, [0.5, 1]),
        (['{"a": 1}', '{"b": 2}'], list[dict[str, Any]], [{"a": 1}, {"b": 2}]),
        (['[{"a": 1}]'], list[dict[str, Any]] | None, [{"a": 1}]),
        (["none"], list[int] | None, None),
        (["red", "green"], list[Color], ["red", "green"]),
    ],
)
def test_several_words_become_a_list_where_the_type_says_so(texts, hint, expected):
    assert read_texts(texts, find_kind(hint)) == expected


def test_a_word_that_is_no_item_raises():
    with pytest.raises(ValueError, match="could not convert"):
        read_texts(["1", "x"], find_kind(list[float] | str))


def test_choices_of_a_field_bind_each_item():
    kind = find_kind(list[str], ["a", "b"])
    assert read_texts(["a", "b"], kind) == ["a", "b"]
    with pytest.raises(ValueError, match="'c' is not known"):
        read_texts(["c"], kind)


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        ("1e-4", float, 1e-4),
        ("1e-4", float | None, 1e-4),
        ("false", bool, False),
        (False, bool, False),
        (3, float, 3),
        ("none", str | None, "none"),
        ("5", str, "5"),
        ("a b", str | list[str], "a b"),
        ("red", Color, "red"),
        (None, int | None, None),
    ],
)
def test_only_text_from_a_file_is_read_again(value, hint, expected):
    assert read_file_value(value, find_kind(hint)) == expected


@pytest.mark.parametrize(
    ("hint", "word"),
    [
        (int, "INT"),
        (float | None, "FLOAT"),
        (Color | str, "{red,green}"),
        (list[int], "INT ..."),
        (dict[str, Any] | str, "JSON"),
        (Path, "VALUE"),
        (Literal[tuple(f"a long choice {number}" for number in range(9))], "NAME"),
    ],
)
def test_the_help_says_what_is_expected(hint, word):
    assert find_kind(hint).describe() == word
