"""Random generators go on where they stood, between footplate and the original."""

import random

import numpy as np
import pytest
import torch
from torch import nn
from transformers import Trainer, TrainingArguments

from footplate.checkpoint.rng import load_rng, save_rng


def draw():
    return random.random(), np.random.rand(3).tolist(), np.random.normal(), torch.rand(3).tolist()


def original_trainer(folder):
    return Trainer(nn.Linear(1, 1), TrainingArguments(folder, report_to="none", use_cpu=True))


@pytest.mark.parametrize("has_half_a_pair", [False, True])
def test_every_generator_goes_on_where_it_stood(has_half_a_pair, tmp_path):
    if has_half_a_pair:
        np.random.normal()  # numpy makes normal numbers in pairs and keeps the second
    save_rng(tmp_path / "new")
    expected = draw()
    draw()
    assert load_rng(tmp_path / "new")
    assert draw() == expected


def test_the_original_reads_the_file_and_the_other_way_round(tmp_path):
    trainer = original_trainer(tmp_path)
    save_rng(tmp_path / "ours")
    trainer._save_rng_state(str(tmp_path / "theirs"))
    expected = draw()
    trainer._load_rng_state(str(tmp_path / "ours"))
    assert draw() == expected
    assert load_rng(tmp_path / "theirs")
    assert draw() == expected


def test_the_keys_are_the_originals_and_any_safe_reader_takes_them(tmp_path):
    save_rng(tmp_path / "ours")
    original_trainer(tmp_path)._save_rng_state(str(tmp_path / "theirs"))
    ours = torch.load(tmp_path / "ours" / "rng_state.pth", weights_only=True)
    theirs = torch.load(tmp_path / "theirs" / "rng_state.pth", weights_only=False)
    assert ours.keys() == theirs.keys()


def test_a_missing_file_is_said_in_words_and_changes_nothing(tmp_path, caplog):
    save_rng(tmp_path / "now")
    expected = draw()
    load_rng(tmp_path / "now")
    assert load_rng(tmp_path) is False
    assert "has no rng_state.pth" in caplog.text
    assert draw() == expected


@pytest.fixture
def restored_generators():
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


pytestmark = pytest.mark.usefixtures("restored_generators")
