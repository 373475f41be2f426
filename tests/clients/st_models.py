"""Encoders for the scripts of sentence-transformers."""

from __future__ import annotations

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel

from small import tokenizer


def saved_bert(is_classifier: bool = False) -> str:
    """The folder of a BERT of a few thousand weights."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=64, max_position_embeddings=64, pad_token_id=0, num_labels=1, **sizes)
    folder = tempfile.mkdtemp()
    (BertForSequenceClassification if is_classifier else BertModel)(config).save_pretrained(folder)
    tokenizer(is_bert=True).save_pretrained(folder)
    return folder
