"""Train a model for real in this process and print the highest memory that it took, as JSON.

python reality.py single|ddp|fsdp mlp|gpt FOLDER: `single` through footplate's Trainer, the others by plain
loops under torchrun. Memory is the growth of the resident set above what the process had after a small run of
the same kind, which imports and allocates what every run needs.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

NUM_UPDATES = 2  # the second has the state of the optimizer
# large blocks go back to the system at once, so that the resident set is what tensors take
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}


class Mlp(nn.Module):
    """Layers in a list, as wide as they are said to be."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return {"loss": (x - labels).square().mean()}


def build_mlp(is_small: bool = False) -> nn.Module:
    """40 million parameters."""
    return Mlp(64, 2) if is_small else Mlp(2000, 10)


def build_gpt(is_small: bool = False) -> nn.Module:
    """A GPT-2 whose activations take many times the memory of its weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_embd": 32, "n_layer": 2} if is_small else {"n_embd": 256, "n_layer": 6}
    config = GPT2Config(vocab_size=5000, n_positions=256, n_head=4, bos_token_id=0, eos_token_id=0, **sizes)
    return GPT2LMHeadModel(config)


def build(name: str, is_small: bool = False) -> nn.Module:
    """The model called `name`."""
    return {"mlp": build_mlp, "gpt": build_gpt}[name](is_small)


def make_rows(name: str, is_small: bool = False) -> list[dict[str, Any]]:
    """The rows of one micro-batch."""
    if name == "mlp":
        width, num_rows = (64, 4) if is_small else (2000, 256)
        return [{"x": torch.zeros(width), "labels": torch.zeros(width)} for _ in range(num_rows)]
    length, num_rows = (8, 2) if is_small else (256, 12)
    return [{"input_ids": list(range(length)), "labels": list(range(length))} for _ in range(num_rows)]


def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """The rows as one batch."""
    return {key: torch.stack([torch.as_tensor(row[key]) for row in rows]) for key in rows[0]}


# ---- runs ----


def train_single(name: str, folder: Path, is_small: bool) -> None:
    """One process, through footplate's own Trainer, with a checkpoint at the end."""
    from footplate import Trainer, TrainingArguments

    rows = make_rows(name, is_small)
    args = settings(folder / ("small" if is_small else "large"), len(rows), TrainingArguments)
    Trainer(build(name, is_small), args, train_dataset=rows, data_collator=collate).train()


def settings(folder: Path, num_rows: int, arguments_class: Any) -> Any:
    """The settings of the run in one process."""
    return arguments_class(
        str(folder),
        max_steps=NUM_UPDATES,
        per_device_train_batch_size=num_rows,
        save_steps=NUM_UPDATES,
        use_cpu=True,
        disable_tqdm=True,
        report=False,
    )


def train_ddp(name: str, folder: Path, is_small: bool) -> None:
    """DistributedDataParallel, written by hand."""
    model = build(name, is_small)
    run_loop(nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True), model, name, is_small)


def train_fsdp(name: str, folder: Path, is_small: bool) -> None:
    """FSDP2, written by hand: each layer is a unit, the rest is the root."""
    from torch.distributed.fsdp import fully_shard

    model: Any = build(name, is_small)
    for layer in model.layers if name == "mlp" else model.transformer.h:
        fully_shard(layer)
    fully_shard(model)
    run_loop(model, model, name, is_small)


def run_loop(wrapped: nn.Module, model: nn.Module, name: str, is_small: bool) -> None:
    """A few updates with AdamW and clipping."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batch = collate(make_rows(name, is_small))
    for _ in range(NUM_UPDATES):
        outputs: Any = wrapped(**batch)
        loss = outputs["loss"]
        del outputs
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


# ---- memory ----


def read_status(field: str) -> int:
    """A figure of /proc/self/status in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def measure(run: Any, name: str, folder: Path) -> int:
    """How far the resident set grows above what it was before the model is built."""
    run(name, folder, True)
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    before = read_status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak counts from now
    run(name, folder, False)
    return read_status("VmHWM") - before


def main() -> None:
    kind, name, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if kind != "single":
        torch.distributed.init_process_group("gloo")
    run = {"single": train_single, "ddp": train_ddp, "fsdp": train_fsdp}[kind]
    peak = measure(run, name, folder)
    rank = int(os.environ.get("RANK", "0"))
    (folder / f"{kind}-{name}-{rank}.json").write_text(json.dumps({"peak": peak}), encoding="utf-8")
    if kind != "single":
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
