"""Ranks that differ are refused with the difference; a folder that hosts do not share is named."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path

import pytest

from footplate import TrainingArguments
from footplate.distributed import agreement
from footplate.distributed.agreement import canonical, check_agreement, comparable_arguments


def test_arguments_of_one_rank_alone_are_not_compared(tmp_path):
    first = TrainingArguments(output_dir=tmp_path / "a", dataloader_num_workers=2, seed=3, report_to="none")
    second = TrainingArguments(output_dir=tmp_path / "b", local_rank=1, seed=3, report_to="none")
    other = TrainingArguments(output_dir=tmp_path / "a", seed=4, report_to="none")
    assert comparable_arguments(first.to_dict()) == comparable_arguments(second.to_dict())
    assert comparable_arguments(first.to_dict()) != comparable_arguments(other.to_dict())


def test_every_argument_that_may_differ_exists():
    assert {
        name for name in agreement.LOCAL_ARGUMENTS if name not in TrainingArguments.__dataclass_fields__
    } == set()


def test_one_process_agrees_with_itself():
    check_agreement({"rows": object()})
    assert agreement.find_shared_folder_problem("nowhere") is None
    assert not Path("nowhere").exists()


class Color(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({3, 1, 2}, {1, 2, 3}),
        ((1, "x"), [1, "x"]),
        (Color.RED, "red"),
        (Path("a/b"), os.path.join("a", "b")),
        (object(), object()),
    ],
)
def test_equal_values_have_one_text(one, other):
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    ("one", "other"), [(1, 1.0), (1, "1"), (None, "None"), ([1, 2], [2, 1]), (0.1, 0.1 + 1e-17 * 2)]
)
def test_different_values_have_different_texts(one, other):
    assert (canonical(one) == canonical(other)) == (one == other and type(one) is type(other))


def test_long_values_are_short_and_still_compared_to_the_end():
    one, other = (
        agreement.flatten({"value": "x" * 9000 + "a"}),
        agreement.flatten({"value": "x" * 9000 + "b"}),
    )
    assert one != other
    assert len(one["value"]) <= agreement.MAX_VALUE


def test_each_difference_names_the_ranks_that_have_each_value():
    facts = [{"rows": 5, "lr": 0.1}, {"rows": 5, "lr": 0.2}, {"rows": 6, "lr": 0.1}, {"rows": 5}]
    flat = [agreement.flatten(fact) for fact in facts]
    text = agreement.describe_differences(flat[0], [agreement.find_differences(flat[0], own) for own in flat])
    assert "lr: 0.1 on ranks 0 and 2, 0.2 on rank 1 and (missing) on rank 3" in text
    assert "rows: 5 on ranks 0-1 and 3 and 6 on rank 2" in text


def test_a_thousand_differences_are_shown_as_a_few():
    first, own = ({f"weight {number}": value for number in range(1000)} for value in ("1", "2"))
    text = agreement.describe_differences(first, [{}, agreement.find_differences(first, own)])
    assert len(text.splitlines()) < 30
    assert "There may be more; the first 20 are shown." in text
