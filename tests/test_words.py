"""Words for true and false, and sizes: one list for settings and environment variables."""

from __future__ import annotations

import pytest

from footplate.words import is_true, keep_end, parse_bytes, read_flag, string_to_bool

TRUE = ["1", "true", "T", "yes", "Y", "ON", "True"]
FALSE = ["0", "false", "F", "no", "N", "Off"]


@pytest.mark.parametrize("text", TRUE)
def test_a_word_for_true_is_true_everywhere(text, monkeypatch):
    monkeypatch.setenv("FOOTPLATE_TEST_FLAG", text)
    assert (is_true(text), string_to_bool(text), read_flag("FOOTPLATE_TEST_FLAG")) == (True, True, True)


@pytest.mark.parametrize("text", [*FALSE, "", "perhaps"])
def test_any_other_text_in_a_variable_is_false(text, monkeypatch):
    monkeypatch.setenv("FOOTPLATE_TEST_FLAG", text)
    assert not read_flag("FOOTPLATE_TEST_FLAG")


def test_a_variable_that_is_not_set_is_false(monkeypatch):
    monkeypatch.delenv("FOOTPLATE_TEST_FLAG", raising=False)
    assert not read_flag("FOOTPLATE_TEST_FLAG")


def test_a_setting_must_be_one_of_the_words():
    assert [string_to_bool(text) for text in FALSE] == [False] * len(FALSE)
    for text in ("", "perhaps", "2"):
        with pytest.raises(ValueError, match=f"'{text}' is neither true nor false: use true or false"):
            string_to_bool(text)


@pytest.mark.parametrize("flag", [True, False])
def test_a_bool_stays_a_bool(flag):
    assert string_to_bool(flag) is flag


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("12", 12), ("12B", 12), ("5GB", 5 * 10**9), ("1.5 kb", 1500), (".5MiB", 1 << 19), ("2gi", 2 << 30)],
)
def test_a_size_is_read_as_bytes(text, num_bytes):
    assert parse_bytes(text) == num_bytes


@pytest.mark.parametrize("text", ["", "GB", "5XB", "5i", "-1GB", "1e3", "five", "\uff15GB"])
def test_what_is_no_size_has_no_bytes(text):
    assert parse_bytes(text) is None


def test_a_long_text_keeps_its_end():
    assert keep_end("model.layer", 11) == "model.layer"
    assert keep_end("model.layer", 6) == "…layer"
