"""What scripts call themselves on folders of checkpoints, beside the original's functions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import transformers
import transformers.trainer_utils as original
from torch import nn

from footplate.checkpoint.by_hand import load_sharded_checkpoint, rotate_checkpoints, sort_checkpoints


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Checkpoints whose times of change are in another order than their steps, and other things."""
    for number, step in enumerate([10, 2, 30, 4]):
        (tmp_path / f"checkpoint-{step}").mkdir()
        os.utime(tmp_path / f"checkpoint-{step}", (1000 + 100 * number,) * 2)
    (tmp_path / "checkpoint-best").mkdir()
    (tmp_path / "checkpoint-7").write_text("a file", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("best", [None, "checkpoint-2", "checkpoint-30", "checkpoint-99"])
def test_checkpoints_are_sorted_as_in_the_original(folder, best):
    path = None if best is None else str(folder / best)
    ours = sort_checkpoints(folder, best_model_checkpoint=path)
    assert ours == original.sort_checkpoints(str(folder), best_model_checkpoint=path)
    assert len(ours) == 4


def test_checkpoints_can_be_sorted_by_time_unless_all_times_are_the_same(folder):
    (folder / "checkpoint-best").rmdir()
    assert [Path(path).name for path in sort_checkpoints(folder, use_mtime=True)] == [
        "checkpoint-10",
        "checkpoint-2",
        "checkpoint-30",
        "checkpoint-4",
    ]
    for path in folder.glob("checkpoint-*"):
        os.utime(path, (1000, 1000))
    assert sort_checkpoints(folder, use_mtime=True) == sort_checkpoints(folder)


@pytest.mark.parametrize(
    ("limit", "best", "left"),
    [
        (None, None, 4),
        (0, None, 4),
        (2, None, 2),
        (2, "checkpoint-2", 2),
        (1, "checkpoint-2", 2),
        (9, None, 4),
    ],
)
def test_old_checkpoints_go_but_never_the_newest_or_the_best(folder, limit, best, left):
    rotate_checkpoints(str(folder), limit, None if best is None else str(folder / best))
    names = {Path(path).name for path in sort_checkpoints(folder)}
    assert len(names) == left
    assert "checkpoint-30" in names
    assert best is None or best in names
    assert (folder / "checkpoint-best").is_dir()


def shards(folder: Path) -> nn.Module:
    """A model, saved in several files."""
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "vocab_size": 50}
    model = transformers.GPT2Model(transformers.GPT2Config(**sizes))
    model.save_pretrained(folder, max_shard_size="10KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    return model


def test_shards_are_loaded_one_after_another(tmp_path):
    saved = shards(tmp_path)
    model = transformers.GPT2Model(saved.config)
    assert not torch.equal(model.wte.weight, saved.wte.weight)
    result = load_sharded_checkpoint(model, tmp_path)
    assert all(torch.equal(tensor, saved.state_dict()[name]) for name, tensor in model.state_dict().items())
    assert (result.missing_keys, result.unexpected_keys) == ([], [])


def test_shards_of_another_model_are_refused_before_anything_is_loaded(tmp_path):
    shards(tmp_path)
    other = nn.Linear(2, 2)
    before = other.weight.clone()
    with pytest.raises(RuntimeError, match="Missing: \\['bias', 'weight'\\]"):
        load_sharded_checkpoint(other, tmp_path)
    assert torch.equal(other.weight, before)
    assert load_sharded_checkpoint(other, tmp_path, strict=False).missing_keys == ["bias", "weight"]


def test_a_folder_without_an_index_is_named(tmp_path):
    with pytest.raises(ValueError, match="no index of shards"):
        load_sharded_checkpoint(nn.Linear(2, 2), tmp_path)
