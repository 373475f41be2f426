"""Trains with one setting of several processes after another, and writes what each rank saw as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import torch
import torch.distributed
from torch import nn
from torch.utils.data import IterableDataset

from footplate import Trainer, TrainingArguments

NUM_ROWS = 21  # two full updates of 8 rows, and 5 rows


class Model(nn.Module):
    """A line that notes which rows it was trained on, and a buffer that each rank changes in its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1)
        self.register_buffer("count", torch.zeros(1))
        self.rows: list[list[int]] = []
        with torch.no_grad():
            self.linear.weight.copy_(torch.tensor([[0.5, -0.25]]))
            self.linear.bias.zero_()

    def forward(self, row: torch.Tensor, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """The mean loss of the rows."""
        if self.training:
            self.rows.append(row.tolist())
            self.count += float(row[0])
        return {"loss": ((self.linear(x).squeeze(-1) - labels) ** 2).mean()}


def make_rows(num_rows: int = NUM_ROWS) -> list[dict[str, Any]]:
    """Numbered points near a plane."""
    x = torch.randn(num_rows, 2, generator=torch.Generator().manual_seed(0))
    return [
        {"row": i, "x": x[i].tolist(), "labels": float(2 * x[i, 0] - x[i, 1] + 1)} for i in range(num_rows)
    ]


class Stream(IterableDataset[Any]):
    """Rows in their order; notes which were read."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows, self.read = rows, []

    def __iter__(self) -> Iterator[Any]:
        for row in self.rows:
            self.read.append(row["row"])
            yield row


class ShardedStream(Stream):
    """A stream that can be asked for a part."""

    def shard(self, num_shards: int, index: int) -> ShardedStream:
        """Every `num_shards`-th row."""
        part = ShardedStream(self.rows[index::num_shards])
        part.read = self.read
        return part


def give_rows(parts: list[list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """For `datasets`, which shares out lists among shards."""
    for part in parts:
        yield from part


def huggingface_stream(num_shards: int) -> Any:
    """The rows as a stream of `datasets` that has so many shards."""
    rows = make_rows()
    parts = [rows[index::num_shards] for index in range(num_shards)]
    return datasets.IterableDataset.from_generator(give_rows, gen_kwargs={"parts": parts})


def train(folder: Path, data: Any = None, **settings: Any) -> Trainer:
    """Train a new model and return its Trainer."""
    common = {
        **{"num_train_epochs": 2, "learning_rate": 0.1, "save_strategy": "no", "logging_steps": 1},
        **{"per_device_train_batch_size": 4, "lr_scheduler_type": "constant", "optim": "sgd"},
        **{"report_to": "none", "disable_tqdm": True, "use_cpu": True, "report": False, "log_level": "error"},
    }
    args = TrainingArguments(output_dir=str(folder / "run"), **{**common, **settings})
    trainer = Trainer(model=Model(), args=args, train_dataset=make_rows() if data is None else data)
    trainer.train()
    return trainer


def describe(trainer: Trainer) -> dict[str, Any]:
    """The rows that this rank trained on, batch by batch, and the weights."""
    weights = [*trainer.model.linear.weight.flatten().tolist(), *trainer.model.linear.bias.tolist()]
    return {"rows": trainer.model.rows, "weights": weights, "steps": trainer.state.global_step}


def describe_group() -> dict[str, Any]:
    """What torch knows about the group."""
    group = torch.distributed.distributed_c10d._get_default_group()
    backend = group._get_backend(torch.device("cpu"))
    return {"backend": torch.distributed.get_backend(), "seconds": backend.options._timeout.total_seconds()}


def describe_ddp(trainer: Trainer) -> dict[str, Any]:
    """What DDP was made with, by torch and by the Accelerator, and what became of the buffer."""
    wrapped, handler = trainer.model_wrapped, trainer.accelerator.ddp_handler
    names = ("find_unused_parameters", "broadcast_buffers", "static_graph")
    return {
        "torch": {**{name: getattr(wrapped, name) for name in names}, "bytes": wrapped.bucket_bytes_cap},
        "accelerate": {name: getattr(handler, name) for name in (*names, "bucket_cap_mb")},
        "buffer": trainer.model.count.item(),
    }


def refused(folder: Path, **settings: Any) -> str:
    """What is said about settings that cannot work."""
    try:
        train(folder, **settings)
    except ValueError as error:
        return str(error)
    return ""


def train_on_streams(folder: Path) -> dict[str, Any]:
    """Streams of every kind, each rank reading its own part where the stream can do that."""
    seen = {}
    reads_own = {"accelerator_config": {"dispatch_batches": False}}
    streams = {"plain": Stream(make_rows()), "own shard": ShardedStream(make_rows())}
    for name, stream in streams.items():
        trainer = train(folder, stream, max_steps=2, **reads_own)
        seen[name] = {**describe(trainer), "read": stream.read}
    for num_shards in (1, 2):
        trainer = train(folder, huggingface_stream(num_shards), max_steps=2, **reads_own)
        seen[f"datasets, {num_shards}"] = describe(trainer)
    seen["unset"] = describe(train(folder, Stream(make_rows()), max_steps=2))
    return seen


def main(folder: Path) -> None:
    """All settings in turn: the first arguments make the group."""
    first = train(folder, ddp_backend="gloo", ddp_timeout=77)
    given = {"ddp_find_unused_parameters": False, "ddp_bucket_cap_mb": 7, "ddp_broadcast_buffers": False}
    seen = {
        "group": describe_group(),
        "unset": {**describe(first), **describe_ddp(first)},
        "given": describe_ddp(train(folder, ddp_static_graph=True, **given)),
        "uneven": describe(train(folder, accelerator_config={"even_batches": False})),
        "split": describe(train(folder, make_rows(24), accelerator_config={"split_batches": True})),
        "split of 5": refused(
            folder, accelerator_config={"split_batches": True}, per_device_train_batch_size=5
        ),
        "dispatched": refused(folder, accelerator_config={"dispatch_batches": True}),
        "streams": train_on_streams(folder),
    }
    each = train(folder, save_on_each_node=True, log_on_each_node=False, save_strategy="epoch").args
    seen["each node"] = [each.should_log, each.should_save]
    file = folder / "results" / f"{each.process_index}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(seen), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
