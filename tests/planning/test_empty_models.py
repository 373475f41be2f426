"""Models without memory."""

from __future__ import annotations

import torch
from torch import nn

import tiny
from footplate.planning.empty_models import empty_models


class Positions(nn.Module):
    """Makes tables as models do: read as values, written into weights, kept as buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.rates = [rate.item() for rate in torch.linspace(0, 1, 3)]
        self.weight = nn.Parameter(torch.randn(8, 4) * 0.02)
        table = torch.zeros(8, 4)
        table[:, 0::2] = torch.sin(torch.arange(8.0))[:, None]
        self.register_buffer("table", table)
        self.inner = nn.Linear(4, 4)


def test_modules_are_empty_and_everything_else_is_real():
    with empty_models():
        model = Positions()
        data = torch.randn(4, 4)
        assert not data.is_meta
        assert model.weight.is_meta
        assert model.inner.weight.is_meta
        assert model.rates == [0.0, 0.5, 1.0]
        assert model.to("cpu") is model
        assert model.cpu().to(torch.bfloat16).weight.dtype is torch.bfloat16
        assert model.weight.is_meta
        assert torch.ones(2).to("cpu").sum().item() == 2
    assert not nn.Linear(2, 2).weight.is_meta


def test_from_pretrained_reads_the_configuration_alone(tmp_path):
    from transformers import AutoModelForSequenceClassification, GPT2LMHeadModel

    tiny.gpt().save_pretrained(tmp_path / "gpt")
    tiny.bert_classifier().save_pretrained(tmp_path / "bert")
    for folder in ("gpt", "bert"):
        (tmp_path / folder / "model.safetensors").unlink()
    original = GPT2LMHeadModel.from_pretrained
    with empty_models():
        gpt = GPT2LMHeadModel.from_pretrained(tmp_path / "gpt", dtype="bfloat16")
        bert = AutoModelForSequenceClassification.from_pretrained(tmp_path / "bert", num_labels=7)
    assert all(value.is_meta for value in gpt.parameters())
    assert gpt.dtype is torch.bfloat16
    assert bert.classifier.out_features == 7
    assert GPT2LMHeadModel.from_pretrained == original
