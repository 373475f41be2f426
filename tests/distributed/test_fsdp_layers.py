"""Which parts of a model FSDP shards one by one."""

from __future__ import annotations

import pytest
import transformers
from torch import nn

from footplate.arguments.fsdp_config import FsdpSettings
from footplate.distributed.fsdp_layers import choose_layers
from sharded import Words


def name_layers(model, **settings):
    names = {id(part): name for name, part in model.named_modules()}
    return [names[id(part)] for part in choose_layers(model, FsdpSettings(**settings))]


def test_a_model_of_transformers_names_its_layers_itself():
    config = transformers.LlamaConfig(
        hidden_size=8,
        intermediate_size=16,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_hidden_layers=2,
        vocab_size=16,
    )
    model = transformers.LlamaForCausalLM(config)
    assert name_layers(model) == ["model.layers.1", "model.layers.0"]


def test_blocks_in_a_sequence_count_as_layers_and_single_operations_do_not():
    def block():
        return nn.TransformerEncoderLayer(4, 1, 8)

    assert name_layers(nn.Sequential(block(), block(), nn.Linear(4, 4))) == ["1", "0"]


def test_a_model_without_repeated_layers_is_one_unit_and_this_is_said(caplog):
    assert name_layers(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))) == []
    assert "gathers all of its weights at once" in caplog.text


def test_inner_parts_come_before_outer_ones():
    names = name_layers(Words(), wrap="classes", layer_classes=("Block", "LayerNorm", "Linear"))
    assert names.index("blocks.0.inner") < names.index("blocks.0")


def test_a_part_with_tied_weights_stays_with_the_model_and_this_is_said(caplog):
    names = name_layers(Words(), wrap="classes", layer_classes=("Embedding", "Block"))
    assert names == ["blocks.2", "blocks.1", "blocks.0"]
    assert "embed" in caplog.text


def test_parameters_of_a_chosen_part_are_not_counted_again():
    assert name_layers(Words(), wrap="size", min_num_params=70) == [
        f"blocks.{block}.{part}" for block in (2, 1, 0) for part in ("outer", "inner")
    ]


def test_an_unknown_class_raises_with_those_that_exist():
    with pytest.raises(ValueError, match=r"no part of class Layer. It has .*Block"):
        name_layers(Words(), wrap="classes", layer_classes=("Layer",))
