from __future__ import annotations

import peft
import torch
import transformers

from footplate.wrappers import forward_parameters

LORA = peft.LoraConfig(target_modules=["query"])


class Plain(torch.nn.Module):
    """A model with a part called `module`, which makes it no wrapper."""

    def __init__(self):
        super().__init__()
        self.module = torch.nn.Linear(2, 2)

    def forward(self, x, labels=None):
        return self.module(x)


class Wrapper(torch.nn.Module):
    """Passes everything on, as parallel wrappers do."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


class Anything(torch.nn.Module):
    """A model that names no column."""

    def forward(self, **kwargs):
        return kwargs


def bert():
    config = transformers.BertConfig(
        vocab_size=10, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    return transformers.BertForSequenceClassification(config)


def test_forward_is_found_inside_every_wrapper():
    named = forward_parameters(bert())
    assert named[:2] == ["input_ids", "attention_mask"]
    assert forward_parameters(peft.get_peft_model(bert(), LORA)) == named
    assert forward_parameters(peft.get_peft_model(bert(), LORA, mixed=True)) == named
    assert forward_parameters(torch.compile(bert())) == named
    assert forward_parameters(torch.nn.DataParallel(bert())) == named
    assert forward_parameters(Wrapper(torch.compile(peft.get_peft_model(bert(), LORA)))) == named
    assert forward_parameters(Plain()) == ["x", "labels"]
    assert forward_parameters(Anything()) == ["kwargs"]
