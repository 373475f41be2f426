"""What every contender evaluates, and how it is timed and weighed."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, default_collate

WIDTH = 64
NUM_CLASSES = {"fixed": 512, "ragged": 16}
WARM_UP_ROWS = 64
PAGE_BYTES = 4096
Row = dict[str, Tensor]


@dataclass
class Settings:
    """One measurement: how many rows of which kind, and the ceiling where the contender has one."""

    kind: str  # "fixed": 512 logits a row; "ragged": 4 to 128 tokens of 16 logits each
    rows: int
    output_dir: str
    batch_size: int = 8
    memory_limit: str | None = None
    spawned_at: float = 0.0


class Classifier(nn.Module):
    """A perceptron that classifies rows of numbers, or every token of a row, and returns its own loss."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, WIDTH) if kind == "ragged" else nn.Identity()
        widths = [WIDTH, *((128,) if kind == "ragged" else (512, 512)), NUM_CLASSES[kind]]
        layers = [module for sizes in pairwise(widths) for module in (nn.Linear(*sizes), nn.ReLU())]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor, labels: Tensor) -> Row:
        logits = self.layers(self.embed(x))
        loss = nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
        return {"loss": loss, "logits": logits}


class Rows(Dataset[Row]):
    """Rows cut from a small table, so that data takes hardly any memory however many there are."""

    def __init__(self, kind: str, num_rows: int) -> None:
        self.num_rows = num_rows
        self.is_ragged = kind == "ragged"
        generator = torch.Generator().manual_seed(0)
        self.points = torch.randn(1000, WIDTH, generator=generator)
        self.labels = torch.randint(0, NUM_CLASSES["fixed"], (1000,), generator=generator)
        # lengths change from row to row, and with padding to the longest from batch to batch
        self.lengths = torch.randint(4, 129, (1000,), generator=generator).tolist()
        self.tokens = torch.randint(0, 1000, (1000, 128), generator=generator)

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, index: int) -> Row:
        place = index * 7919 % 1000  # a prime: all places in turn
        if not self.is_ragged:
            return {"x": self.points[place], "labels": self.labels[place]}
        tokens = self.tokens[place, : self.lengths[place]]
        return {"x": tokens, "labels": tokens % NUM_CLASSES["ragged"]}


def pad(rows: list[Row]) -> Row:
    """A batch as long as its longest row."""
    fill = nn.utils.rnn.pad_sequence
    return {
        "x": fill([row["x"] for row in rows], batch_first=True),
        "labels": fill([row["labels"] for row in rows], batch_first=True, padding_value=-100),
    }


def read_settings() -> tuple[Settings, nn.Module, Callable[[list[Row]], Any]]:
    """The settings of this process, its model and its collator."""
    settings = Settings(**json.loads(sys.argv[1]))
    return settings, *build_parts(settings.kind)


def build_parts(kind: str) -> tuple[nn.Module, Callable[[list[Row]], Any]]:
    """The seeded model and the collator of a kind of rows."""
    torch.manual_seed(0)
    return Classifier(kind), pad if kind == "ragged" else default_collate


def join(parts: list[np.ndarray], num_rows: int) -> np.ndarray:
    """All batches in one array, rows filled up with -100, as people write it."""
    width = max(part.shape[1] for part in parts) if parts[0].ndim > 1 else 0
    if all(part.ndim < 2 or part.shape[1] == width for part in parts):
        return np.concatenate(parts)
    joined = np.full((num_rows, width, *parts[0].shape[2:]), -100, dtype=parts[0].dtype)
    position = 0
    for part in parts:
        joined[position : position + len(part), : part.shape[1]] = part
        position += len(part)
    return joined


def describe(predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """The accuracy, a few rows at a time so that it takes no memory, and the size of what it is given."""
    right = counted = 0
    for start in range(0, len(predictions), 100):
        part = labels[start : start + 100]
        right += int((predictions[start : start + 100].argmax(-1) == part).sum())
        counted += int((part != -100).sum())
    return {"accuracy": right / counted, "array_bytes": predictions.nbytes + labels.nbytes}


def measure(settings: Settings, evaluate: Callable[[Rows], dict[str, float]]) -> None:
    """Evaluate some rows to warm up, then all of them on the clock, and print the figures."""
    evaluate(Rows(settings.kind, WARM_UP_ROWS))
    rows = Rows(settings.kind, settings.rows)
    scale = Scale(samples=settings.memory_limit is not None)
    wall, cpu = time.perf_counter(), time.process_time()
    found = evaluate(rows)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    figures = {"eval_wall": wall, "eval_cpu": cpu, **scale.read(), **found}
    print(json.dumps({name: [value] for name, value in figures.items()}))


class Scale:
    """The most memory that the process held above what it held at the start.

    The system keeps the peak of all pages. That of anonymous ones, which unlike those of a file cannot be
    dropped when memory is short, has to be watched, by a thread that the other measurements do without.
    """

    def __init__(self, samples: bool) -> None:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")  # the peak begins anew
        self._resident, self._anonymous = held_bytes()
        self._peak = self._anonymous
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True) if samples else None
        if self._thread is not None:
            self._thread.start()

    def _watch(self) -> None:
        while not self._is_over.wait(0.01):
            self._peak = max(self._peak, held_bytes()[1])

    def read(self) -> dict[str, int]:
        """Bytes at the peak: of all pages, and of anonymous ones where they were watched."""
        with open("/proc/self/status", encoding="ascii") as file:
            kilobytes = next(line.split()[1] for line in file if line.startswith("VmHWM"))
        peaks = {"peak_bytes": int(kilobytes) * 1024 - self._resident}
        if self._thread is not None:
            self._is_over.set()
            self._thread.join()
            peaks["anonymous_bytes"] = self._peak - self._anonymous
        return peaks


def held_bytes() -> tuple[int, int]:
    """Resident bytes of this process: all, and those of no file."""
    with open("/proc/self/statm", encoding="ascii") as file:
        resident, shared = (int(pages) * PAGE_BYTES for pages in file.read().split()[1:3])
    return resident, resident - shared
