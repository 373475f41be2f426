"""What stays when a run resumes."""

from __future__ import annotations

import pytest

from footplate.resumed import ResumePoint


@pytest.mark.parametrize(("step", "stays"), [(0, True), (4, True), (5, False), (float("inf"), False)])
def test_records_up_to_the_step_stay(step, stays):
    assert ResumePoint(4).keeps(step) is stays


def test_the_number_of_a_log_decides_between_two_logs_of_one_step():
    point = ResumePoint(4, num_logs=7)
    assert point.keeps(4, log_number=7)
    assert not point.keeps(4, log_number=8)
    assert point.keeps(4)  # not a log: its step decides


def test_without_a_count_of_logs_the_step_decides():
    assert ResumePoint(4).keeps(4, log_number=8)
    assert not ResumePoint(4).keeps(5, log_number=1)


def test_records_are_kept_in_their_order():
    records = [{"step": 3}, {"step": 9}, {"step": 1}, {"step": 4}]
    assert ResumePoint(4).keep(records, lambda record: record["step"]) == [
        {"step": 3},
        {"step": 1},
        {"step": 4},
    ]


@pytest.mark.parametrize("step", range(7))
def test_counting_and_keeping_agree(step):
    steps = [1, 2, 2, 5]
    point = ResumePoint(step)
    assert steps[: point.count_kept(steps)] == point.keep(steps, lambda entry: entry)


@pytest.mark.parametrize(
    ("point", "is_start"),
    [(ResumePoint(0), True), (ResumePoint(0, 0), True), (ResumePoint(0, 1), False), (ResumePoint(2), False)],
)
def test_a_start_is_told_from_a_resume(point, is_start):
    assert point.is_start is is_start
