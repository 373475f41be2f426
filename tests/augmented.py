"""Rows with random augmentation, and a stream of them that keeps its place."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset


def augment(index: int, num_rows: int) -> dict[str, Any]:
    """A row with noise from all three generators that a dataset may use."""
    noise = random.random() + float(np.random.rand()) + torch.rand(4)
    return {"x": torch.full((4,), index / num_rows) + noise, "labels": index % 3, "id": index}


class AugmentedRows(Dataset):
    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, index: int) -> dict[str, Any]:
        return augment(index, self.num_rows)


class AugmentedStream(IterableDataset):
    """A stream without length that knows where it is."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows, self.position = num_rows, 0

    def read(self, index: int) -> dict[str, Any]:
        return augment(index, self.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while self.position < self.num_rows:
            self.position += 1
            yield self.read(self.position - 1)
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]
