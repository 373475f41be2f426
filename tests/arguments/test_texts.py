"""Texts become values as in the original."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest
import transformers.hf_argparser as original
import transformers.training_args as arguments

from footplate.arguments import texts


@pytest.mark.parametrize("word", ["yes", "TRUE", "t", "1", "no", "False", "n", "0", True, False])
def test_words_for_true_and_false_are_those_of_the_original(word):
    assert texts.string_to_bool(word) is original.string_to_bool(word)


@pytest.mark.parametrize("word", ["on", "OFF", "y", "0"])
def test_variables_may_say_on_and_off(word):
    assert texts.str_to_bool(word) is arguments.str_to_bool(word)
    assert texts.str_to_bool(word, to_bool=False) == arguments.str_to_bool(word, to_bool=False)


def test_other_words_are_refused():
    with pytest.raises(ArgumentTypeError, match="'maybe' is not a truth value"):
        texts.string_to_bool("maybe")
    with pytest.raises(ValueError, match="'maybe' is not a truth value"):
        texts.str_to_bool("maybe")


def test_a_choice_keeps_its_type():
    choose = texts.make_choice_type_function([1, "one", None])
    assert [choose("1"), choose("one"), choose("None"), choose("two")] == [1, "one", None, "two"]


def test_log_levels_are_those_of_the_original():
    assert texts.trainer_log_levels == arguments.trainer_log_levels
