"""Names, formats and files of metrics against the original's."""

import json
import re
import time

import numpy as np
import pytest
import torch
from transformers import Trainer, trainer_pt_utils, trainer_utils

from footplate.evaluation.metrics import (
    denumpify_detensorize,
    find_best,
    format_metrics_table,
    metrics_format,
    plain_numbers,
    prefix_keys,
    read_metric,
    save_metrics_file,
    speed_metrics,
)

METRICS = {
    "eval_loss": 0.123456789,
    "eval_runtime": 3671.987,
    "train_mem_cpu_alloc_delta": 5 << 20,
    "total_flos": float(7 << 30),
    "eval_samples": 12,
    "name": "text",
    "epoch": 3.0,
}


def test_keys_are_prefixed_in_the_originals_order():
    metrics = {"f1": 1, "eval_loss": 2, "accuracy": 3, "evaluation": 4, "eval_f1_macro": 5}
    assert list(prefix_keys(metrics, "eval").items()) == [
        ("eval_loss", 2),
        ("eval_f1_macro", 5),
        ("eval_f1", 1),
        ("eval_accuracy", 3),
        ("eval_evaluation", 4),
    ]
    assert prefix_keys({"loss": 1, "eval_loss": 2}, "eval") == {"eval_loss": 1}
    assert next(iter(metrics)) == "f1"


def test_scalars_become_plain_numbers_as_in_the_original():
    nested = {"a": np.float32(0.5), "b": [torch.tensor([3]), (np.int64(2), "x")], "c": torch.ones(2), "d": 1}
    ours, theirs = plain_numbers(nested), trainer_utils.denumpify_detensorize(nested)
    assert ours["c"] is theirs["c"] is nested["c"]
    assert {**ours, "c": None} == {**theirs, "c": None}
    assert [type(ours["a"]), type(ours["b"][0]), type(ours["b"][1][0])] == [float, int, int]
    assert type(plain_numbers(np.array(1.5))) is float
    assert denumpify_detensorize is plain_numbers


@pytest.mark.parametrize(
    "counts",
    [{}, {"num_samples": 10}, {"num_samples": 10, "num_steps": 3, "num_tokens": 99}, {"num_steps": 0}],
    ids=str,
)
def test_speed_is_measured_as_the_original_does(counts, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1003.2)
    assert speed_metrics("train", 1000.0, **counts) == trainer_utils.speed_metrics("train", 1000.0, **counts)
    assert speed_metrics("eval", 1003.2, **counts) == {"eval_runtime": 0.0}


def test_metrics_are_formatted_as_in_the_original():
    assert metrics_format(METRICS) == trainer_pt_utils.metrics_format(METRICS)


def test_the_table_is_the_one_the_original_prints(capsys):
    class Zero:
        is_world_process_zero = staticmethod(lambda: True)

    trainer_pt_utils.log_metrics(Zero, "eval", METRICS)
    assert format_metrics_table("eval", METRICS) + "\n" == capsys.readouterr().out
    assert format_metrics_table("eval", {}) == "***** eval metrics *****"
    assert "eval_best = None" in format_metrics_table("eval", {"eval_best": None})


def test_metrics_files_are_the_originals(tmp_path):
    class There:
        args = type("Args", (), {"output_dir": str(tmp_path / "there")})
        is_world_process_zero = staticmethod(lambda: True)

    (tmp_path / "there").mkdir()
    for split, metrics in [("train", {"train_loss": 1.5}), ("eval", {"eval_f1": 0.5, "epoch": 1.0})]:
        Trainer.save_metrics(There, split, metrics)
        save_metrics_file(tmp_path / "here", split, metrics)
    Trainer.save_metrics(There, "test", {"test_loss": 0.1}, combined=False)
    save_metrics_file(tmp_path / "here", "test", {"test_loss": 0.1}, combined=False)
    theirs = {path.name: path.read_text() for path in (tmp_path / "there").iterdir()}
    assert {path.name: path.read_text() for path in (tmp_path / "here").iterdir()} == theirs
    assert set(theirs) == {"train_results.json", "eval_results.json", "test_results.json", "all_results.json"}


def test_numpy_values_are_saved_as_numbers(tmp_path):
    save_metrics_file(tmp_path, "eval", {"eval_f1": np.float32(0.5)})
    assert json.loads((tmp_path / "all_results.json").read_text()) == {"eval_f1": 0.5}


@pytest.mark.parametrize("name", ["f1", "eval_f1"])
def test_the_metric_for_best_is_found_with_or_without_prefix(name):
    assert read_metric({"eval_f1": np.float64(0.5)}, name) == 0.5


def test_an_unknown_metric_for_best_names_what_there_is():
    expected = (
        "metric_for_best_model='bleu' is not among what evaluation gives: ['eval_f1', 'eval_loss']. "
        "Name one of these, or return 'bleu' from compute_metrics."
    )
    with pytest.raises(ValueError, match=re.escape(expected)):
        read_metric({"eval_loss": 1.0, "eval_f1": 1.0}, "bleu")


@pytest.mark.parametrize(
    ("new", "best", "greater", "expected"),
    [
        (1.0, None, True, True),
        (1.0, None, False, True),
        (2.0, 1.0, True, True),
        (2.0, 1.0, False, False),
        (1.0, 1.0, True, False),
        (1.0, 1.0, False, False),
        (float("nan"), None, True, False),
        (float("nan"), 1.0, False, False),
        (1.0, float("nan"), True, False),
        (float("-inf"), None, True, False),
    ],
)
def test_better_means_strictly_better(new, best, greater, expected):
    assert find_best(new, best, greater).is_new is expected
