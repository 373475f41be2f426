"""Weights in several files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tiny
from footplate import Trainer
from footplate.checkpoint.shards import parse_shard_size, save_shards
from footplate.checkpoint.tensors import read_shards
from footplate.checkpoint.weights import load_weights, save_weights

NAME = "model.safetensors"


def state() -> dict[str, torch.Tensor]:
    first = torch.arange(100.0)
    return {"a": first, "b": torch.ones(50), "c": torch.ones(300), "d": torch.zeros(10), "tied": first}


def files_in(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def read(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for _, part in read_shards(folder, (NAME,)) for name, tensor in part.items()}


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_small_weights_are_one_file(tmp_path):
    save_shards(state(), tmp_path / NAME, 10_000)
    assert files_in(tmp_path) == [NAME]
    assert_same(read(tmp_path), state())


def test_larger_ones_are_split_in_order_with_an_index(tmp_path):
    save_shards(state(), tmp_path / NAME, 700)
    names = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
    assert files_in(tmp_path) == [*names, f"{NAME}.index.json"]
    index = json.loads((tmp_path / f"{NAME}.index.json").read_text())
    assert index["weight_map"] == {"a": names[0], "b": names[0], "c": names[1], "d": names[2]}
    assert index["metadata"]["total_size"] == 460 * 4
    assert_same(read(tmp_path), state())  # the tied tensor has both of its names


def test_a_tensor_larger_than_the_limit_has_a_file_for_itself(tmp_path):
    save_shards(state(), tmp_path / NAME, 1)
    assert len(files_in(tmp_path)) == 5
    assert_same(read(tmp_path), state())


def test_no_file_of_an_earlier_save_is_left_that_a_reader_could_take(tmp_path):
    for max_bytes, num_files in ((700, 4), (None, 1), (1, 5), (700, 4), (10_000, 1)):
        changed = {name: tensor + num_files for name, tensor in state().items() if name != "tied"}
        save_shards(changed, tmp_path / NAME, max_bytes)
        assert len(files_in(tmp_path)) == num_files
        assert_same(read(tmp_path), changed)


@pytest.mark.parametrize(
    ("value", "expected"), [(None, None), (500, 500), ("1KB", 1000), ("2MiB", 2 << 20), ("5GB", 5 * 10**9)]
)
def test_sizes_are_read(value, expected):
    assert parse_shard_size(value) == expected


@pytest.mark.parametrize("value", ["much", "", 0, -1, 1.5, True])
def test_what_is_no_size_is_refused(value):
    with pytest.raises(ValueError, match="max_shard_size"):
        parse_shard_size(value)


def test_a_transformers_model_is_split_by_its_own_class(tmp_path):
    model = tiny.bert_classifier()
    save_weights(model, tmp_path, max_shard_size="5KB")
    assert (tmp_path / f"{NAME}.index.json").is_file()
    other = tiny.bert_classifier()
    nn.init.zeros_(other.classifier.weight)
    assert load_weights(other, tmp_path) == ([], [])
    assert_same(other.state_dict(), model.state_dict())


def test_a_run_writes_and_resumes_weights_in_several_files(tmp_path):
    def build(folder: Path) -> Trainer:
        settings = {"max_steps": 6, "save_strategy": "steps", "save_steps": 3, "max_shard_size": 4}
        arguments = tiny.arguments(folder, **settings)
        return Trainer(tiny.Regression(), arguments, train_dataset=tiny.regression_data())

    straight = build(tmp_path)
    straight.train()
    assert (tmp_path / "checkpoint-3" / f"{NAME}.index.json").is_file()
    resumed = build(tmp_path)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert_same(resumed.model.state_dict(), straight.model.state_dict())
