"""Tests of logs as lines for people."""

from __future__ import annotations

import torch

from footplate.callbacks.lines import Columns, fold, format_short, split_prefix


def test_equal_names_stand_below_each_other():
    columns = Columns()
    lines = [
        columns.format(
            step, 200, {"loss": loss, "grad_norm": 1.5, "learning_rate": 4e-5, "epoch": step / 100}
        )
        for step, loss in ((5, 12.3456), (50, 0.98), (150, 0.5))
    ]
    assert lines[0] == "    5/200  epoch 0.05  loss 12.35    grad 1.500    lr 4.000e-05"
    assert len({line.index("lr") for line in lines}) == 1


def test_an_evaluation_has_its_name_and_its_time_and_no_other_speed():
    logs = {"eval_news_loss": 0.5, "eval_news_f1": 80.0, "eval_news_runtime": 2.5, "epoch": 1.0}
    logs |= {"eval_news_samples_per_second": 12.0, "eval_news_steps_per_second": 3.0}
    line = Columns().format(10, 20, logs, ("eval", "test", "eval_news"))
    assert line == "  10/20  epoch 1.00  eval news  loss 0.5000   f1 80.00    in 2.5 s"


def test_a_long_log_is_folded_below_its_cells_and_never_wider_than_the_terminal():
    logs = {f"eval_metric_number_{i}": 0.123456 for i in range(12)} | {"eval_note": "x" * 300}
    for width in (200, 100, 40):
        lines = Columns().format(10, 20, logs, ("eval",), width).split("\n")
        assert max(map(len, lines)) <= min(width, 100)
        assert all(line.startswith(" " * 9) for line in lines[1:])
        assert sum(line.count("metric_number") for line in lines) == 12


def test_a_prefix_is_taken_off_only_if_all_keys_have_it():
    assert split_prefix({"eval_loss": 1, "loss": 2}, ("eval",)) == ("", {"eval_loss": 1, "loss": 2})
    assert split_prefix({"train_loss": 1, "epoch": 3}, ("eval",)) == ("train", {"loss": 1})
    assert split_prefix({"epoch": 3}, ("eval",)) == ("", {})


def test_numbers_have_four_digits():
    values = (0.5, 12345.678, 0.00001234, 0.0, 3, torch.tensor(2.5), float("nan"), float("inf"), 999.96)
    assert [format_short(value) for value in values] == [
        *("0.5000", "1.235e+04", "1.234e-05", "0", "3", "2.500", "nan", "inf", "1000")
    ]
    assert "\n" not in format_short("two\nlines")


def test_a_cell_wider_than_the_terminal_is_cut():
    assert fold("ab", ["c" * 50], 20) == "ab  " + "c" * 13 + "..."
