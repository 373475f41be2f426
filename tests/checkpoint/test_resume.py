"""What has changed since a checkpoint, said and obeyed; and the sample at which a run goes on."""

from __future__ import annotations

import logging
import os

import numpy as np
import pytest
import torch
import transformers
from torch import nn

from footplate.arguments import TrainingArguments
from footplate.checkpoint.arguments import load_arguments, save_arguments
from footplate.checkpoint.resume import (
    Differences,
    apply_to_state,
    check_differences,
    compare_arguments,
    describe,
    find_saved_arguments,
    review_resume,
)
from footplate.state import TrainerState


def settings(**changes):
    return TrainingArguments("runs", **changes).to_dict()


def on_disk(folder, **changes):
    """Settings as a checkpoint gives them back."""
    save_arguments(settings(**changes), folder)
    return load_arguments(folder)


RICH = {
    "lr_scheduler_kwargs": {"num_cycles": 2},
    "lr_scheduler_type": "cosine",
    "accelerator_config": {"split_batches": True},
    "label_names": ("labels", "spans"),
    "learning_rate": np.float64(3e-4),
    "param_groups": [{"match": "head", "lr": 1e-3}],
    "eval_strategy": "epoch",
    "save_every": "30min",
    "hub_token": "secret",
}


@pytest.mark.parametrize("changes", [{}, RICH], ids=["defaults", "rich"])
def test_the_same_settings_do_not_differ_after_a_way_through_a_file(changes, tmp_path):
    differences = compare_arguments(on_disk(tmp_path, **changes), settings(**changes))
    assert list(differences) == []
    assert not differences
    assert describe(differences) == ""
    check_differences(differences)


def test_values_that_only_look_different_are_the_same():
    was = {"learning_rate": 1, "label_names": ["a"], "output_dir": "runs", "sample_weights": [1.0, 2.0]}
    now = {
        "learning_rate": 1.0,
        "label_names": ("a",),
        "output_dir": "runs",
        "sample_weights": torch.tensor([1.0, 2]),
    }
    assert not compare_arguments(was, now)


def test_a_setting_that_one_side_does_not_know_is_left_out():
    assert not compare_arguments({"learning_rate": 1.0, "gone": 1}, {"learning_rate": 1.0, "new": 2})


def test_three_classes_come_out_of_one_comparison(tmp_path):
    saved = on_disk(tmp_path, logging_steps=500, learning_rate=5e-5, seed=42)
    differences = compare_arguments(saved, settings(logging_steps=10, learning_rate=1e-4, seed=43))
    outcomes = {difference.name: difference.outcome for difference in differences}
    assert outcomes["logging_steps"] == "harmless"
    assert [difference.name for difference in differences.applied] == ["learning_rate"]
    assert [difference.name for difference in differences.refused] == ["seed"]
    assert "seed" in differences
    assert "weight_decay" not in differences
    assert len(differences) == 3


def test_the_table_names_setting_before_after_and_what_happens(tmp_path):
    saved = on_disk(
        tmp_path, logging_steps=500, learning_rate=5e-5, optim_args="a=1", keep_columns=["x" * 50]
    )
    text = describe(
        compare_arguments(
            saved, settings(logging_steps=10, learning_rate=1e-4, optim_args="a=2", keep_columns=None)
        )
    )
    title, header, *rows = text.splitlines()
    assert title == "Resuming with other settings than the checkpoint has:"
    assert header.split() == ["setting", "was", "is", "what", "happens"]
    assert [row.split()[0] for row in rows] == [
        "optim_args",
        "learning_rate",
        "keep_columns",
        "logging_steps",
    ]
    assert rows[1].split(maxsplit=3) == [
        "learning_rate",
        "5e-05",
        "0.0001",
        "applied: the curve continues with this as its highest rate",
    ]
    assert rows[3].split() == ["logging_steps", "500", "10", "harmless"]
    starts = {
        row.index(word) for row, word in zip(rows, ("refused", "applied", "applied", "harmless"), strict=True)
    }
    assert starts == {header.index("what")}
    assert "xxx..." in rows[2]


def test_what_is_refused_names_the_settings_and_the_remedy(tmp_path):
    saved = on_disk(tmp_path, seed=42, optim="adamw_torch")
    with pytest.raises(ValueError, match=r"cannot be resumed") as error:
        check_differences(compare_arguments(saved, settings(seed=43, optim="sgd")))
    message = str(error.value)
    assert "seed: was 42, is 43; it decides the order of samples" in message
    assert "optim: was 'adamw_torch', is 'sgd'; the saved state of the optimizer does not fit" in message
    assert "Set optim, seed as they were, or start a new run from these weights" in message


def test_a_review_prints_then_refuses(tmp_path, caplog):
    save_arguments(settings(seed=42, learning_rate=1e-4), tmp_path)
    with caplog.at_level(logging.WARNING):
        assert len(review_resume(tmp_path, settings(seed=42, learning_rate=2e-4))) == 1
        with pytest.raises(ValueError, match="Set seed as it was"):
            review_resume(tmp_path, settings(seed=1, learning_rate=1e-4))
        assert not review_resume(tmp_path, settings(seed=42, learning_rate=1e-4))
    tables = [record.getMessage() for record in caplog.records]
    assert len(tables) == 2
    assert "learning_rate" in tables[0]
    assert "seed" in tables[1]


def test_what_transformers_pickled_is_not_read_and_one_line_says_so(tmp_path, caplog):
    args = transformers.TrainingArguments(tmp_path, report_to="none", use_cpu=True, seed=7)
    transformers.Trainer(nn.Linear(1, 1), args).save_model()
    with caplog.at_level(logging.WARNING):
        assert not review_resume(tmp_path, settings(seed=42))
    assert len(caplog.records) == 1
    assert "the settings are not compared" in caplog.text


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_hostile_file_runs_nothing(tmp_path):
    torch.save({"seed": Payload(tmp_path / "executed")}, tmp_path / "training_args.bin")
    assert find_saved_arguments(tmp_path) is None
    assert not (tmp_path / "executed").exists()


def test_a_folder_without_settings_is_not_compared(tmp_path):
    assert not review_resume(tmp_path, settings())


@pytest.mark.parametrize("change", [{"metric_for_best_model": "f1"}, {"greater_is_better": True}], ids=str)
def test_the_best_by_another_metric_is_forgotten(change):
    best = {"best_metric": 0.25, "best_global_step": 5, "best_model_checkpoint": "runs/checkpoint-5"}
    state = TrainerState(global_step=10, **best)
    old = {"metric_for_best_model": "loss", "greater_is_better": False}
    apply_to_state(compare_arguments(old, {**old, "learning_rate": 1.0}), state)
    assert state == TrainerState(global_step=10, **best)
    apply_to_state(compare_arguments(old, {**old, **change}), state)
    assert state == TrainerState(global_step=10)


def test_differences_are_a_plain_value():
    assert Differences() == Differences(())
    assert not Differences()


def test_another_number_of_processes_is_named_with_what_happens(tmp_path, caplog):
    save_arguments(settings(), tmp_path)
    for rank in range(2):
        (tmp_path / f"rng_state_{rank}.pth").touch()
    with caplog.at_level(logging.WARNING, logger="footplate"):
        (difference,) = review_resume(tmp_path, settings())
    assert difference[:4] == ("processes", 2, 1, "applied")
    assert "processes  2    1   applied: continues at the same sample" in caplog.text
    grouped = settings(train_sampling_strategy="group_by_length")
    save_arguments(grouped, tmp_path)
    with pytest.raises(ValueError, match=r"processes: was 2, is 1; samples are grouped by length"):
        review_resume(tmp_path, grouped)


def test_as_many_processes_as_before_are_not_mentioned(tmp_path):
    save_arguments(settings(), tmp_path)
    (tmp_path / "rng_state.pth").touch()
    assert not review_resume(tmp_path, settings())
