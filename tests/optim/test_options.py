from __future__ import annotations

import pytest

from footplate.optim.options import OptimizerOptions, parse_switch, parse_value


@pytest.mark.parametrize("text", [None, "", "  "])
def test_no_text_means_no_options(text):
    assert OptimizerOptions(text).unused == []


def test_options_are_taken_one_at_a_time():
    options = OptimizerOptions("momentum=0.9, nesterov = true,rank=8")
    assert options.take("momentum", float, 0.0) == 0.9
    assert options.take("dampening", float, 0.5) == 0.5
    assert options.take_given(("rank", "scale"), int) == {"rank": 8}
    assert options.unused == ["nesterov"]
    assert options.take_all() == {"nesterov": True}
    assert options.unused == []


@pytest.mark.parametrize("text", ["momentum", "momentum=0.9,nesterov", "=3"])
def test_a_part_without_a_value_is_refused(text):
    with pytest.raises(ValueError, match=r"optim_args=.*name=value"):
        OptimizerOptions(text)


def test_a_value_of_the_wrong_kind_names_the_option():
    with pytest.raises(ValueError, match="optim_args has rank=many, which cannot be read"):
        OptimizerOptions("rank=many").take("rank", int, 1)
    with pytest.raises(ValueError, match=r"nesterov=maybe.*neither true nor false"):
        OptimizerOptions("nesterov=maybe").take("nesterov", parse_switch, False)


def test_switches_have_many_spellings():
    assert [parse_switch(text) for text in ("True", "1", "yes", "ON")] == [True] * 4
    assert [parse_switch(text) for text in ("False", "0", "no", "Off")] == [False] * 4


def test_values_are_read_as_what_they_look_like():
    assert [parse_value(text) for text in ("3", "3.0", "1e-3", "true", "False", "std")] == [
        3,
        3.0,
        1e-3,
        True,
        False,
        "std",
    ]
    assert isinstance(parse_value("3"), int)
