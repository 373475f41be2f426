"""A small model with tied weights, and the means to train it on several real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

WORDS, WIDTH = 13, 6


class Block(nn.Module):
    """A layer that counts how often it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, 2 * WIDTH)
        self.outer = nn.Linear(2 * WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.ones(1))  # one process has it, the others have an empty shard
        self.calls = 0
        self.dtype: torch.dtype | None = None

    def forward(self, x: torch.Tensor, past_key_values: Any = None) -> torch.Tensor:
        self.calls += 1
        self.dtype = self.inner.weight.dtype
        if past_key_values is not None:
            past_key_values.append(x)
        return x + self.scale * self.outer(torch.tanh(self.inner(x)))


class Words(nn.Module):
    """Predicts a word from a word; the embedding is the head's weight too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block(), Block()])
        self.statistics = nn.BatchNorm1d(WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("place", torch.arange(WIDTH, dtype=torch.float32), persistent=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.statistics(self.embed(words)) + 0.01 * self.place.to(self.embed.weight.dtype)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def build(seed: int) -> Words:
    """A model with weights of this seed."""
    torch.manual_seed(seed)
    return Words()


def make_batch(update: int, micro_batch: int, rank: int) -> torch.Tensor:
    """The words of one micro-batch of one process."""
    generator = torch.Generator().manual_seed(1000 * update + 10 * micro_batch + rank)
    return torch.randint(0, WORDS, (5,), generator=generator)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW with two groups, one without decay."""
    named = list(model.named_parameters())
    groups = [
        {"params": [parameter for name, parameter in named if "bias" not in name], "weight_decay": 0.1},
        {"params": [parameter for name, parameter in named if "bias" in name], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.99))


def launch(script: str | Path, num_processes: int, *words: str | Path) -> dict[str, Any]:
    """Run a script under torchrun; each process prints one line of JSON, returned by its rank."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
    }
    options = ["--standalone", "--nproc-per-node", str(num_processes)]
    command = [sys.executable, "-m", "torch.distributed.run", *options, str(script), *map(str, words)]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
    assert ended.returncode == 0, ended.stderr[-6000:]
    results = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith('{"rank"')]
    assert len(results) == num_processes, ended.stdout + ended.stderr[-3000:]
    return {result["rank"]: result for result in results}
