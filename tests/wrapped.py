"""Models in wrappers, for tests of what sees through them."""

from __future__ import annotations

import peft
import torch
import transformers

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
