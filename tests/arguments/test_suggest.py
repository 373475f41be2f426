"""Which name a misspelt one is taken for."""

from __future__ import annotations

import pytest

from footplate.arguments.suggest import check_word, did_you_mean


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("lerning_rate", " Did you mean 'learning_rate'?"),
        ("learn", " Did you mean 'learning_rate'?"),
        ("zzz", ""),
        ("", ""),
    ],
)
def test_the_nearest_name_is_suggested(word, expected):
    assert did_you_mean(word, ["seed", "learning_rate"]) == expected


def test_something_that_is_no_text_is_no_problem():
    assert did_you_mean(None, ["seed"]) == ""


def test_a_word_that_is_not_allowed_is_refused_with_the_nearest():
    check_word("color", "red", ("red", "green"))
    with pytest.raises(ValueError, match=r"color='gren' is not known\. Did you mean 'green'\? Set color to"):
        check_word("color", "gren", ("red", "green"))
