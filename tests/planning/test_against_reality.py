"""Plans beside what training really takes: six cases on the CPU, a checkpoint, and large shapes."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from footplate import TrainingArguments
from footplate.planning import MemoryPlan, RunPlan, plan_memory, plan_run

sys.path.insert(0, str(Path(__file__).parent))
import reality

LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
WAYS = {"single": (1, "none"), "ddp": (2, "none"), "fsdp": (2, "full_shard")}


def plan(kind: str, name: str, folder: Path) -> MemoryPlan:
    rows = reality.make_rows(name)
    args = reality.settings(folder, len(rows), TrainingArguments)
    if kind != "single":
        args.save_strategy = "no"  # the loops by hand save nothing
    with torch.device("meta"):
        model: Any = reality.build(name)
    layers = model.layers if name == "mlp" else model.transformer.h
    world_size, sharding = WAYS[kind]
    return plan_memory(
        model, args, reality.collate(rows), world_size=world_size, sharding=sharding, units=list(layers)
    )


def train(kind: str, name: str, folder: Path) -> list[int]:
    """The peak of every process."""
    launch = [sys.executable] if kind == "single" else LAUNCH
    words = [*launch, str(Path(reality.__file__)), kind, name, str(folder)]
    environment = {**os.environ, **reality.MALLOC, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(file.read_text())["peak"] for file in sorted(folder.glob(f"{kind}-{name}-*.json"))]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux to measure")
@pytest.mark.parametrize("name", ["mlp", "gpt"])
@pytest.mark.parametrize("kind", list(WAYS))
def test_the_planned_peak_is_within_a_fifth_of_the_real_one(kind, name, tmp_path):
    real = train(kind, name, tmp_path)
    planned = plan(kind, name, tmp_path)
    assert len(real) == planned.world_size
    for peak in real:
        assert planned.peak == pytest.approx(peak, rel=0.2)


def test_the_planned_checkpoint_is_within_a_twentieth_of_the_real_one(tmp_path):
    import tiny

    model = tiny.bert_classifier(hidden_dropout_prob=0.0)
    wide = reality.Mlp(300, 3)
    rows = [{"x": torch.zeros(300), "labels": torch.zeros(300)}] * 4
    for case, (built, data) in {"bert": (model, tiny.classification_data(4)), "mlp": (wide, rows)}.items():
        settings = {"max_steps": 2, "save_strategy": "steps", "save_steps": 2, "optim": "adamw_torch"}
        trainer = tiny.build_trainer(tmp_path / case, built, data, **settings)
        planned = trainer.plan().checkpoints
        trainer.train()
        files = (tmp_path / case / "checkpoint-2").rglob("*")
        real = sum(file.stat().st_size for file in files if file.is_file())
        assert planned.num_written == 1
        # the files besides the weights are all that a model of a few thousand weights has
        assert planned.num_bytes == pytest.approx(real, rel=0.05 if case == "mlp" else 0.5)


# ---- large shapes ----

SHAPES = {
    "7B": {"hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 11008},
    "70B": {"hidden_size": 8192, "num_hidden_layers": 80, "intermediate_size": 28672},
}
HEADS = {
    "7B": {"num_attention_heads": 32, "num_key_value_heads": 32},
    "70B": {"num_attention_heads": 64, "num_key_value_heads": 8},
}


def plan_llama(size: str, folder: Path) -> RunPlan:
    """The plan of the table in docs/planning.md."""
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(vocab_size=32000, **SHAPES[size], **HEADS[size]))
    model.activation_checkpointing_enable()
    args = TrainingArguments(
        str(folder), per_device_train_batch_size=1, max_steps=1000, bf16=True, use_cpu=True, report=False
    )
    ids = torch.ones(1, 4096, dtype=torch.long)
    return plan_run(
        model, args, {"input_ids": ids, "labels": ids}, world_size=8, device="cuda", memory="80GB"
    )


def find(plan: RunPlan, world_size: int, sharding: str) -> MemoryPlan:
    (found,) = [row for row in plan.table if (row.world_size, row.sharding) == (world_size, sharding)]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("size", "num_parameters"), [("7B", 6_738_415_616), ("70B", 68_976_648_192)])
def test_large_shapes_are_planned_without_allocating_them(size, num_parameters, tmp_path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    planned = plan_llama(size, tmp_path)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * 1024 < 1e9
    assert planned.num_parameters == num_parameters
    whole = find(planned, 8, "none")
    # Adam in mixed precision: 4 bytes of weights, 4 of gradients and 8 of state for each parameter
    state = whole.weights + whole.gradients + whole.optimizer
    assert state == pytest.approx(16 * num_parameters, rel=0.001)
    sharded = find(planned, 8, "full_shard")
    assert sharded.weights + sharded.optimizer == pytest.approx(12 * num_parameters / 8, rel=0.001)
    assert planned.memory.is_measured
    assert planned.recommended is not None
    assert planned.recommended.world_size == {"7B": 2, "70B": 32}[size]
