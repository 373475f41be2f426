"""Settings on disk are plain values and nothing else."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from transformers import Trainer, TrainingArguments

from footplate.checkpoint.arguments import load_arguments, save_arguments
from footplate.outputs import IntervalStrategy


@dataclass
class Inner:
    ratio: float = 0.5
    names: tuple[str, ...] = field(default=("a", "b"))


def test_settings_come_back_as_plain_values(tmp_path):
    settings = {
        "learning_rate": np.float64(5e-5),
        "eval_strategy": IntervalStrategy.STEPS,
        "output_dir": Path("out"),
        "inner": Inner(),
        "dtype": torch.bfloat16,
        "names": {"b", "a"},
        "nothing": None,
        "flags": [True, 3, {"deep": IntervalStrategy.NO}],
    }
    save_arguments(settings, tmp_path / "new")
    assert torch.load(tmp_path / "new" / "training_args.bin", weights_only=True) == load_arguments(
        tmp_path / "new"
    )
    assert load_arguments(tmp_path / "new") == {
        "learning_rate": 5e-5,
        "eval_strategy": "steps",
        "output_dir": "out",
        "inner": {"ratio": 0.5, "names": ["a", "b"]},
        "dtype": "torch.bfloat16",
        "names": ["a", "b"],
        "nothing": None,
        "flags": [True, 3, {"deep": "no"}],
    }


def test_all_settings_of_the_original_can_be_saved(tmp_path):
    settings = TrainingArguments(tmp_path, report_to="none", use_cpu=True).to_dict()
    save_arguments(settings, tmp_path)
    assert load_arguments(tmp_path)["learning_rate"] == settings["learning_rate"]
    assert load_arguments(tmp_path).keys() == settings.keys()


def test_what_the_original_pickled_is_refused_in_words(tmp_path):
    Trainer(nn.Linear(1, 1), TrainingArguments(tmp_path, report_to="none", use_cpu=True)).save_model()
    with pytest.raises(ValueError, match=r"training_args\.bin was not read"):
        load_arguments(tmp_path)


def test_a_missing_file_is_said_in_words(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no training_args\.bin"):
        load_arguments(tmp_path)


def test_a_file_that_is_no_dictionary_is_refused(tmp_path):
    torch.save([1], tmp_path / "training_args.bin")
    with pytest.raises(ValueError, match="holds a list"):
        load_arguments(tmp_path)
