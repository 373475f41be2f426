"""Small models and data for runs in one process and in several, and what is compared of such runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

import footplate

NUM_RANKS = int(os.environ.get("WORLD_SIZE", 1))
RANK = int(os.environ.get("RANK", 0))
TIMES = ("runtime", "per_second", "preparation_time")  # in the keys of what differs from run to run


class Classifier(nn.Module):
    """Classes from four numbers; with dropout on demand."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.drop, self.last = nn.Linear(4, 8), nn.Dropout(dropout), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, Any]:
        logits = self.last(self.drop(torch.tanh(self.first(x))))
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Tagger(nn.Module):
    """A class for each token; the loss is the mean over tokens that count."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.last = nn.Embedding(20, 6), nn.Linear(6, 3)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
        logits = self.last(self.words(tokens))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        return {"loss": loss, "logits": logits}


class Rows(Dataset):
    """Rows of a list."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return dict(self.rows[index])


def numbers(num_rows: int, seed: int = 1) -> Rows:
    """Rows of four numbers with a class each."""
    draw = torch.Generator().manual_seed(seed)
    x, labels = torch.randn(num_rows, 4, generator=draw), torch.randint(0, 3, (num_rows,), generator=draw)
    return Rows([{"x": x[i], "labels": labels[i], "id": i, "name": f"row {i}"} for i in range(num_rows)])


def ragged(num_rows: int, seed: int = 1) -> Rows:
    """Rows of one to seven tokens, the first of which sometimes do not count."""
    draw = torch.Generator().manual_seed(seed)
    rows = []
    for number in range(num_rows):
        length = 1 + int(torch.randint(0, 7, (), generator=draw))
        tokens = torch.randint(1, 20, (length,), generator=draw)
        labels = torch.where(torch.arange(length) < number % 3, -100, tokens % 3)
        rows.append({"tokens": tokens, "labels": labels, "id": number})
    return Rows(rows)


def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A batch; rows of tokens are padded to the longest, texts stay a list."""
    batch: dict[str, Any] = {}
    for key in rows[0]:
        column = [row[key] for row in rows]
        if isinstance(column[0], str):
            batch[key] = column
        elif key in ("tokens", "labels") and torch.as_tensor(column[0]).ndim:
            fill = -100 if key == "labels" else 0
            batch[key] = nn.utils.rnn.pad_sequence(column, batch_first=True, padding_value=fill)
        else:
            batch[key] = torch.stack([torch.as_tensor(value) for value in column])
    return batch


class Recorder(footplate.Trainer):
    """Notes which rows went into every update, those that count."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.seen: dict[int, list[list[int]]] = {}
        super().__init__(*args, **kwargs)

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        step = self.state.global_step + 1
        ids = inputs["id"].tolist() if self._current_run.batch_weight else []
        self.seen.setdefault(step, []).append(ids)
        return super().training_step(model, inputs, num_items_in_batch)


def arguments(folder: Any, library: Any = footplate, **settings: Any) -> Any:
    """Arguments that write nothing and print nothing unless told to."""
    quiet = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    return library.TrainingArguments(output_dir=str(folder), **{**quiet, **settings})


def plain(value: Any) -> Any:
    """A value as JSON holds it, floats to the last bit."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return {"kind": str(value.dtype).replace("torch.", ""), "values": value.tolist()}
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "items"):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def timeless(metrics: Any) -> dict[str, Any]:
    """Metrics or a log without what is measured by the clock."""
    return {key: plain(value) for key, value in metrics.items() if not any(word in key for word in TIMES)}


def history(trainer: Any) -> list[dict[str, Any]]:
    """The log without times."""
    return [timeless(entry) for entry in trainer.state.log_history]


def weights(model: nn.Module) -> dict[str, Any]:
    """The weights of a model."""
    return {name: tensor.tolist() for name, tensor in model.state_dict().items()}


def describe(trainer: Any) -> dict[str, Any]:
    """What is compared of a run that has ended."""
    return {
        "step": trainer.state.global_step,
        "history": history(trainer),
        "weights": weights(trainer.model),
        "seen": {str(step): ids for step, ids in getattr(trainer, "seen", {}).items()},
    }


def differences(found: Any, expected: Any, tolerance: float = 0.0, path: str = "") -> list[str]:
    """Where two results differ, numbers by more than `tolerance`; NaN equals NaN."""
    if isinstance(expected, dict) and isinstance(found, dict) and list(expected) == list(found):
        pairs = [(f"{path}/{key}", found[key], expected[key]) for key in expected]
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = [(f"{path}/{i}", *pair) for i, pair in enumerate(zip(found, expected, strict=True))]
    else:
        are_nan = found != found and expected != expected
        are_numbers = isinstance(found, float) and isinstance(expected, float)
        is_near = are_numbers and abs(found - expected) <= tolerance
        is_same = found == expected or are_nan or is_near
        return [] if is_same else [f"{path}: {found} instead of {expected}"]
    return [line for at, one, other in pairs for line in differences(one, other, tolerance, at)]
