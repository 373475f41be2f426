"""Runs on every rank: training with DDP, with FSDP, and runs that go on from each other's checkpoints."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from footplate import Trainer, TrainingArguments, comm

SHARDS = {"fsdp": "full_shard", "fsdp_config": {"transformer_layer_cls_to_wrap": ["GPT2Block"]}}


def make_model() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    sizes = {"n_layer": 2, "n_embd": 16, "n_head": 2, "vocab_size": 32, "n_positions": 16}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


def make_rows(count: int) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    texts = [torch.randint(0, 32, (8,), generator=generator) for _ in range(count)]
    return [{"input_ids": text, "labels": text.clone()} for text in texts]


def train(folder: Path, checkpoint: Path | None = None, **settings: Any) -> tuple[Trainer, dict[str, Any]]:
    """A run in a folder, and what it came to: its log, and its whole weights on the first rank."""
    args = TrainingArguments(
        str(folder),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        num_train_epochs=2,
        learning_rate=0.01,
        logging_steps=1,
        save_steps=3,
        eval_strategy="epoch",
        per_device_eval_batch_size=2,
        use_cpu=True,
        disable_tqdm=True,
        **{"module_stats_steps": 2, **settings},
    )
    rows = make_rows(8 * comm.world_size())  # two updates per epoch
    count = lambda prediction: {"rows": len(prediction.label_ids)}  # noqa: E731
    trainer = Trainer(make_model(), args, train_dataset=rows, eval_dataset=rows[:5], compute_metrics=count)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    trainer.save_model(str(folder / "final"))
    comm.barrier()
    keys = ("loss", "eval_loss", "eval_rows", "grad_norm")
    log = [{key: entry[key] for key in keys if key in entry} for entry in trainer.state.log_history]
    return trainer, {"log": log}


def go_on(source: Path, folder: Path, **settings: Any) -> dict[str, Any]:
    """Resume a copy of another run after its third update."""
    if comm.rank() == 0:
        shutil.copytree(source / "checkpoint-3", folder / "checkpoint-3")
    comm.barrier()
    return train(folder, folder / "checkpoint-3", **settings)[1]


def main() -> None:
    root = Path(sys.argv[1])
    found: dict[str, Any] = {}
    _, found["ddp"] = train(root / "ddp")
    if comm.world_size() == 4:  # two copies of the weights, each in two shards
        hybrid = {"fsdp": "hybrid_shard", "fsdp_config": {"shard_size": 2}}
        trainer, found["hybrid"] = train(root / "hybrid", **hybrid)
        found["mesh"] = list(trainer._strategy.mesh.shape)
        found["again"] = go_on(root / "hybrid", root / "again", **hybrid)
        (root / f"result-{comm.rank()}.json").write_text(json.dumps(found))
        return
    trainer, found["fsdp"] = train(root / "fsdp", **SHARDS)
    found["shard"] = type(next(trainer.model.parameters())).__name__
    found["enabled"] = trainer.is_fsdp_enabled
    found["fsdp -> fsdp"] = go_on(root / "fsdp", root / "fsdp_fsdp", module_stats_steps=None, **SHARDS)
    found["fsdp -> ddp"] = go_on(root / "fsdp", root / "fsdp_ddp")
    found["ddp -> fsdp"] = go_on(root / "ddp", root / "ddp_fsdp", **SHARDS)
    _, found["best"] = train(
        root / "best", load_best_model_at_end=True, save_total_limit=1, save_full_model=True, **SHARDS
    )
    (root / f"result-{comm.rank()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
