"""What every contender evaluates, and how it is timed and weighed."""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

WIDTH = 16


@dataclass
class Settings:
    """One measurement: how many rows of which kind, and the ceiling where the contender has one."""

    kind: str  # "fixed": 512 logits a row; "ragged": 4 to 128 tokens of 8 logits each
    rows: int
    output_dir: str
    batch_size: int = 8
    memory_limit: str | None = None
    spawned_at: float = 0.0


class Fixed(nn.Module):
    """512 logits per row."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, 512)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.head(x)
        loss = nn.functional.cross_entropy(logits, labels) if labels is not None else None
        return {"loss": loss, "logits": logits} if loss is not None else {"logits": logits}


class Ragged(nn.Module):
    """Logits for every token of rows of different length."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(100, WIDTH), nn.Linear(WIDTH, 8)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.head(self.embed(x))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()) if labels is not None else None
        return {"loss": loss, "logits": logits} if loss is not None else {"logits": logits}


class Rows(torch.utils.data.Dataset[Any]):
    """Rows that cost nothing to keep: each is made when it is read."""

    def __init__(self, kind: str, num_rows: int) -> None:
        self.num_rows = num_rows
        self.is_ragged = kind == "ragged"
        generator = torch.Generator().manual_seed(0)
        # lengths change batch by batch, as they do with padding to the longest
        self.lengths = torch.randint(4, 129, (num_rows,), generator=generator).tolist()
        self.tokens = torch.randint(0, 100, (128,), generator=generator)
        self.point = torch.randn(WIDTH, generator=generator)

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        if not self.is_ragged:
            return {"x": self.point, "labels": torch.tensor(index % 512)}
        tokens = self.tokens[: self.lengths[index]]
        return {"x": tokens, "labels": tokens % 8}


def collate(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """A batch, padded to its longest row."""
    if rows[0]["x"].dtype != torch.long:
        return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    pad = nn.utils.rnn.pad_sequence
    return {
        "x": pad([row["x"] for row in rows], batch_first=True),
        "labels": pad([row["labels"] for row in rows], batch_first=True, padding_value=-100),
    }


def mean_accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
    """A metric that is cheap in time and memory: a thousand rows at a time."""
    right = counted = 0
    for start in range(0, len(predictions), 1000):
        part = labels[start : start + 1000]
        right += int(((predictions[start : start + 1000].argmax(-1) == part) & (part != -100)).sum())
        counted += int((part != -100).sum())
    return right / counted


class Weight:
    """The most memory that the process held above what it held at the start."""

    def __init__(self) -> None:
        self._base = self.peak = anonymous_bytes()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._is_over.wait(0.01):
            self.peak = max(self.peak, anonymous_bytes())

    def stop(self) -> int:
        """End the watch; returns bytes."""
        self._is_over.set()
        self._thread.join()
        return max(self.peak, anonymous_bytes()) - self._base


def anonymous_bytes() -> int:
    """Resident bytes of this process, files that can be dropped at any time included."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


def read_settings() -> tuple[Settings, nn.Module, Rows]:
    """The settings of this process, its model and its rows."""
    settings = Settings(**json.loads(sys.argv[1]))
    torch.manual_seed(0)
    model = Fixed() if settings.kind == "fixed" else Ragged()
    return settings, model, Rows(settings.kind, settings.rows)


def print_result(settings: Settings, seconds: float, peak: int, accuracy: float, array_bytes: int) -> None:
    """The figures as the last line of output."""
    print(
        json.dumps(
            {
                "rows_per_second": [settings.rows / seconds],
                "seconds": [seconds],
                "peak_bytes": [peak],
                "array_bytes": [array_bytes],
                "accuracy": [accuracy],
            }
        )
    )


def now() -> float:
    """The clock of all contenders."""
    return time.perf_counter()
