"""Padding to multiples, up to a limit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast, Wav2Vec2FeatureExtractor

from footplate.data.collators.multiples import PaddingToMultiples, build_padding, find_widest
from footplate.data.collators.padding import DataCollatorWithPadding


def build_tokenizer(**settings: Any) -> PreTrainedTokenizerFast:
    core = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1}, unk_token="[UNK]"))
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="[PAD]", unk_token="[UNK]", **settings)


def rows(*lengths: int) -> list[dict[str, Any]]:
    return [{"input_ids": [1] * length, "label": length} for length in lengths]


@pytest.mark.parametrize(
    ("longest", "width"),
    [(1, 16), (16, 16), (17, 32), (33, 40), (40, 40), (41, 48)],  # beyond the limit as without one
)
def test_the_width_is_a_multiple_and_rounding_never_passes_the_limit(longest, width):
    collate = PaddingToMultiples(build_tokenizer(), pad_to_multiple_of=16, widest=40)
    batch = collate(rows(longest, 1))
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (2, width)
    assert batch["attention_mask"].sum(1).tolist() == [longest, 1]
    assert torch.equal(batch["labels"], torch.tensor([longest, 1]))


def test_the_limit_is_the_smaller_of_tokenizer_and_model():
    config = SimpleNamespace(max_position_embeddings=512)
    assert find_widest(build_tokenizer(model_max_length=100), config) == 100
    assert find_widest(build_tokenizer(), config) == 512  # a tokenizer without a limit
    assert find_widest(build_tokenizer(), None) is None


def test_only_a_compiled_model_with_a_known_limit_changes_the_default():
    limited = build_tokenizer(model_max_length=100)
    assert type(build_padding(limited, None, None, False)) is DataCollatorWithPadding
    assert build_padding(limited, None, None, True).pad_to_multiple_of == 64
    assert build_padding(limited, None, 8, True).pad_to_multiple_of == 8
    assert build_padding(build_tokenizer(), None, None, True).pad_to_multiple_of is None
    assert build_padding(Wav2Vec2FeatureExtractor(), None, None, True).pad_to_multiple_of is None


def test_nothing_to_collate_is_said():
    with pytest.raises(ValueError, match="no samples"):
        PaddingToMultiples(build_tokenizer(), pad_to_multiple_of=8)([])
