from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    T5Config,
    T5ForConditionalGeneration,
)

from footplate.optim.depth import find_depths

SMALL_BERT = BertConfig(
    vocab_size=20, hidden_size=8, num_hidden_layers=3, num_attention_heads=2, intermediate_size=8
)


def layers(model):
    """Layers below the head, for each first part of a name that decides."""
    return {name: depth.layers_below_head for name, depth in find_depths(model).items()}


def test_bert_is_ordered_from_embeddings_to_classifier():
    depths = layers(BertForSequenceClassification(SMALL_BERT))
    assert depths["classifier.weight"] == depths["bert.pooler.dense.bias"] == 0
    assert [depths[f"bert.encoder.layer.{i}.output.dense.weight"] for i in range(3)] == [3, 2, 1]
    assert {value for name, value in depths.items() if ".embeddings." in name} == {4}


def test_gpt_keeps_its_last_norm_with_the_head():
    depths = layers(GPT2LMHeadModel(GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=2, n_head=2)))
    assert depths["transformer.ln_f.weight"] == 0
    assert [depths[f"transformer.h.{i}.attn.c_attn.weight"] for i in range(2)] == [2, 1]
    assert depths["transformer.wte.weight"] == depths["transformer.wpe.weight"] == 3


def test_encoder_and_decoder_stand_side_by_side():
    config = T5Config(
        vocab_size=20, d_model=8, d_kv=4, d_ff=8, num_layers=3, num_decoder_layers=2, num_heads=2
    )
    depths = layers(T5ForConditionalGeneration(config))
    assert depths["encoder.block.0.layer.0.SelfAttention.q.weight"] == 3
    assert depths["encoder.block.2.layer.1.DenseReluDense.wi.weight"] == 1
    assert depths["decoder.block.0.layer.0.SelfAttention.q.weight"] == 2
    assert depths["shared.weight"] == 4
    assert depths["decoder.final_layer_norm.weight"] == 0


class Vision(nn.Module):
    """Names in the manner of vision models: a bare token, a stem, blocks, a numbered head made first."""

    def __init__(self):
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(4))
        self.head = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
        self.stem = nn.ModuleList([nn.Linear(4, 4)])
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)) for _ in range(5)])
        self.norm = nn.LayerNorm(4)


def test_what_comes_before_the_blocks_is_deepest_unless_it_is_the_head():
    depths = layers(Vision())
    assert depths["cls_token"] == depths["stem.0.weight"] == 6
    assert depths["head.0.weight"] == depths["head.2.weight"] == depths["norm.weight"] == 0
    assert [depths[f"blocks.{i}.1.weight"] for i in range(5)] == [5, 4, 3, 2, 1]


def test_frozen_blocks_still_count():
    model = BertForSequenceClassification(SMALL_BERT)
    model.bert.encoder.layer[0].requires_grad_(False)
    assert layers(model)["bert.encoder.layer.1.output.dense.weight"] == 2


def test_wrappers_do_not_change_the_depth():
    model = BertForSequenceClassification(SMALL_BERT)
    wrapped = nn.Sequential(nn.ModuleDict({"auto_model": model}), nn.Linear(2, 2))
    assert layers(wrapped) == {
        **{f"0.auto_model.{name}": depth for name, depth in layers(model).items()},
        "1.weight": 0,
        "1.bias": 0,
    }


def test_a_model_without_numbered_blocks_is_refused():
    with pytest.raises(ValueError, match=r"layer_decay needs numbered blocks.*use rules with 'match'"):
        find_depths(nn.ModuleDict({"encoder": nn.Linear(2, 2), "head": nn.Linear(2, 2)}))
