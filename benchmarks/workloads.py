"""The models, the data and the clock that every contender shares, so that only the library differs."""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

NUM_WINDOWS = 10  # stretches of equal length in one run: a busy neighbour spoils some, seldom all
Row = dict[str, Tensor]


@dataclass
class Settings:
    """What one measurement runs; a contender reads it as JSON from its command line."""

    workload: str = "mlp"
    steps: int = 1200
    skip_steps: int = 200
    batch_size: int = 8
    accumulation: int = 1
    save_steps: int = 0  # updates between two saves; 0: none
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    ranks: int = 1  # processes, with a batch each
    finds_unused: bool | None = None  # whether DDP looks for parameters without a gradient
    spawned_at: float = 0.0
    output_dir: str = ""

    @property
    def num_rows(self) -> int:
        """Rows for exactly one epoch, so that no measurement crosses the end of one."""
        return self.steps * self.accumulation * self.batch_size * self.ranks


class Regressor(nn.Module):
    """A three-layer perceptron that returns its own loss, as Hugging Face models do."""

    def __init__(self, num_features: int = 16, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(num_features, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )

    def forward(self, features: Tensor, labels: Tensor) -> Row:
        predictions = self.layers(features).squeeze(-1)
        return {"loss": nn.functional.mse_loss(predictions, labels), "logits": predictions}


class Classifier(nn.Module):
    """A perceptron for four classes, 16-32-32-4: an update is all overhead."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)
        )

    def forward(self, features: Tensor, labels: Tensor) -> Row:
        logits = self.layers(features)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Tower(nn.Module):
    """Square linear layers, each added to its input: many weights, little work per row."""

    def __init__(self, num_layers: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(num_layers))

    def forward(self, features: Tensor, labels: Tensor) -> Row:
        for layer in self.layers:
            features = features + layer(features)
        predictions = features.mean(-1)
        return {"loss": nn.functional.mse_loss(predictions, labels), "logits": predictions}


class Rows(Dataset[Row]):
    """A dataset of dictionaries cut from whole tensors."""

    def __init__(self, **columns: Tensor) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns["labels"])

    def __getitem__(self, index: int) -> Row:
        return {name: column[index] for name, column in self.columns.items()}


def build_mlp(num_rows: int) -> tuple[nn.Module, Rows]:
    """A small regression: the target is a noisy linear function of the features."""
    features = torch.randn(num_rows, 16)
    labels = features @ torch.linspace(-1, 1, 16) + 0.1 * torch.randn(num_rows)
    return Regressor(), Rows(features=features, labels=labels)


def build_wide(num_rows: int) -> tuple[nn.Module, Rows]:
    """The same with wider layers: an update of 32 rows takes about 5 ms on one core."""
    features = torch.randn(num_rows, 16)
    return Regressor(width=1024), Rows(features=features, labels=features.sum(-1))


def build_bert(num_rows: int) -> tuple[nn.Module, Rows]:
    """A two-layer BERT classifier with dropout; the class is whether the first token is in the upper half."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=200, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    input_ids = torch.randint(0, 200, (num_rows, 16))
    rows = Rows(
        input_ids=input_ids, attention_mask=torch.ones_like(input_ids), labels=(input_ids[:, 0] >= 100).long()
    )
    return BertForSequenceClassification(config), rows


def build_tower(num_rows: int, num_layers: int = 15, width: int = 2000) -> tuple[nn.Module, Rows]:
    """60 million weights, 720 MB with the state of AdamW, that take one row at a time."""
    return Tower(num_layers, width), Rows(features=torch.randn(num_rows, width), labels=torch.randn(num_rows))


def build_classes(num_rows: int) -> tuple[nn.Module, Rows]:
    """A small classification: the class is which of the first four features is largest."""
    features = torch.randn(num_rows, 16)
    return Classifier(), Rows(features=features, labels=features[:, :4].argmax(-1))


def build_small_tower(num_rows: int) -> tuple[nn.Module, Rows]:
    """4.5 million weights in 18 layers."""
    return build_tower(num_rows, num_layers=18, width=500)


WORKLOADS = {
    "mlp": build_mlp,
    "wide": build_wide,
    "bert": build_bert,
    "tower": build_tower,
    "classes": build_classes,
    "small_tower": build_small_tower,
}


def stack_rows(rows: list[Row]) -> Row:
    """A batch of rows that are alike."""
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


class Clock:
    """Collates batches, and reads the time whenever a batch that opens an update is asked for.

    Every library calls the collator once per micro-batch in the main process, so the time between two calls
    covers whole updates for all of them, whatever they prefetch, and none carries a hook just for timing.
    """

    def __init__(self, settings: Settings) -> None:
        self.window_steps = (settings.steps - 1 - settings.skip_steps) // NUM_WINDOWS
        marks = [settings.skip_steps + window * self.window_steps for window in range(NUM_WINDOWS + 1)]
        self.marks = {step * settings.accumulation for step in marks}
        self.spawned_at, self.output_dir = settings.spawned_at, settings.output_dir
        self.num_calls = 0
        self.readings: list[tuple[float, float]] = []

    def __call__(self, rows: list[Row]) -> Row:
        if self.num_calls in self.marks:
            self.readings.append((time.process_time(), time.perf_counter()))
        self.num_calls += 1
        return stack_rows(rows)

    def report(self) -> dict[str, list[float]]:
        """Seconds from process start to now, and per update in each window; call it after training."""
        result = {"total_cpu": [time.process_time()], "total_wall": [time.monotonic() - self.spawned_at]}
        windows = list(pairwise(self.readings))
        if self.window_steps > 0:
            result["step_cpu"] = [(end[0] - start[0]) / self.window_steps for start, end in windows]
            result["step_wall"] = [(end[1] - start[1]) / self.window_steps for start, end in windows]
        return result


class SaveClock(Clock):
    """Reads the time of every batch, and tells the updates near a save from the rest.

    Some libraries fetch a batch one update ahead, so the stretch with the save is its own or the next one.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.marks = set(range(0, settings.steps * settings.accumulation, settings.accumulation))
        self.save_steps = settings.save_steps
        self.num_saves = settings.steps // settings.save_steps

    def report(self) -> dict[str, list[float]]:
        """Seconds per save, bytes per save and the peak of memory; call it after training."""
        updates = [end[1] - start[1] for start, end in pairwise(self.readings)]
        num_quiet = min(4, self.save_steps // 2)
        result: dict[str, list[float]] = {"standstill": [], "slowest": [], "added": [], "update": []}
        # the last save ends the run, and no batch follows it
        for last in range(self.save_steps - 1, (self.num_saves - 1) * self.save_steps, self.save_steps):
            # just before a save, the writing of the one before it has long ended
            quiet = statistics.median(updates[last - num_quiet : last])
            result["update"].append(quiet)
            result["standstill"].append(max(updates[last : last + 2]) - quiet)
            block = updates[last : last + self.save_steps]
            result["slowest"].append(max(block) - quiet)
            result["added"].append(sum(block) - len(block) * quiet)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        result["peak_bytes"] = [usage.ru_maxrss * 1024.0]
        result["written_bytes"] = [usage.ru_oublock * 512.0 / self.num_saves]
        return result


def read_settings() -> tuple[Settings, nn.Module, Rows, Clock]:
    """The settings from the command line, with the seeded model, its data and the clock they ask for."""
    settings = Settings(**json.loads(sys.argv[1]))
    torch.manual_seed(0)
    model, rows = WORKLOADS[settings.workload](settings.num_rows)
    clock = SaveClock(settings) if settings.save_steps else Clock(settings)
    return settings, model, rows, clock


@torch.no_grad()
def print_result(clock: Clock, model: nn.Module, rows: Rows) -> None:
    """Print one line of JSON: the times, and the loss reached, which shows that the same work was done.

    One of several processes writes that line into a file of its own.
    """
    result = clock.report()
    model.eval()
    result["loss"] = [float(model(**{name: column[:512] for name, column in rows.columns.items()})["loss"])]
    if "WORLD_SIZE" in os.environ:
        Path(clock.output_dir, f"rank-{os.environ['RANK']}.json").write_text(json.dumps(result))
    else:
        print(json.dumps(result))
