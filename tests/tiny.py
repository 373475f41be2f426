"""Small models and data that the Trainer's tests share."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import footplate


class Regression(nn.Module):
    """Two parameters: a slope and an offset."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(0.5))
        self.offset = nn.Parameter(torch.tensor(-1.0))

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.slope * x + self.offset
        if labels is None:
            return {"logits": logits}
        return {"loss": ((logits - labels) ** 2).mean(), "logits": logits}


def regression_data(num_samples: int = 64, seed: int = 0) -> list[dict[str, torch.Tensor]]:
    """Points near the line `y = 2 x + 3`."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_samples, generator=generator)
    y = 2 * x + 3 + 0.1 * torch.randn(num_samples, generator=generator)
    return [{"x": x[i], "labels": y[i]} for i in range(num_samples)]


def bert_classifier(num_labels: int = 3, **config: Any) -> nn.Module:
    """A BERT classifier of a few thousand weights, the same ones every time, with dropout."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    return BertForSequenceClassification(
        BertConfig(vocab_size=50, max_position_embeddings=32, num_labels=num_labels, **sizes, **config)
    )


def gpt(**config: Any) -> nn.Module:
    """A GPT-2 of a few thousand weights, the same ones every time, with dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
    return GPT2LMHeadModel(GPT2Config(vocab_size=50, bos_token_id=0, eos_token_id=0, **sizes, **config))


def token_rows(num_samples: int, length: int = 12, seed: int = 1) -> list[list[int]]:
    """Random token ids."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, 50, (num_samples, length), generator=generator).tolist()


def classification_data(num_samples: int = 53, num_labels: int = 3) -> list[dict[str, Any]]:
    """Token rows with a class each."""
    return [{"input_ids": row, "labels": i % num_labels} for i, row in enumerate(token_rows(num_samples))]


def causal_data(num_samples: int = 53) -> list[dict[str, Any]]:
    """Token rows to continue; how many labels count differs from row to row."""
    rows = token_rows(num_samples)
    return [
        {
            "input_ids": row,
            "labels": [-100 if position < i % 7 else token for position, token in enumerate(row)],
        }
        for i, row in enumerate(rows)
    ]


def arguments(tmp_path: Any, library: Any = footplate, **settings: Any) -> Any:
    """Arguments that write nothing and print nothing unless told to."""
    quiet = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    return library.TrainingArguments(output_dir=str(tmp_path), **{**quiet, **settings})


def multi_label_data(num_samples: int = 53, num_labels: int = 3) -> list[dict[str, Any]]:
    """Token rows, each with a yes or no for every class."""
    rows = token_rows(num_samples)
    return [{"input_ids": row, "labels": [float(row[k] % 2) for k in range(num_labels)]} for row in rows]


def token_data(num_samples: int = 53, num_labels: int = 3) -> list[dict[str, Any]]:
    """Token rows with a class per token; how many of them count differs from row to row."""
    return [
        {
            "input_ids": row,
            "labels": [-100 if k < i % 7 else token % num_labels for k, token in enumerate(row)],
        }
        for i, row in enumerate(token_rows(num_samples))
    ]


def span_data(num_samples: int = 53) -> list[dict[str, Any]]:
    """Token rows, each with the first and the last token of an answer."""
    rows = token_rows(num_samples)
    return [
        {"input_ids": row, "start_positions": row[0] % 6, "end_positions": 6 + row[1] % 6} for row in rows
    ]


def accuracy(prediction: Any) -> dict[str, float]:
    """Share of rows, or of tokens that count, whose largest logit is the label."""
    counts = prediction.label_ids != -100
    hits = (prediction.predictions.argmax(-1) == prediction.label_ids) & counts
    return {"accuracy": hits.sum() / counts.sum()}


def build_trainer(
    folder: Any,
    model: Any,
    data: Any,
    eval_data: Any = None,
    library: Any = footplate,
    options: Any = None,
    **settings: Any,
) -> Any:
    """A Trainer of footplate or of another library with the same API, under equal circumstances."""
    args = arguments(folder, library, **settings)
    return library.Trainer(
        model=model, args=args, train_dataset=data, eval_dataset=eval_data, **(options or {})
    )
