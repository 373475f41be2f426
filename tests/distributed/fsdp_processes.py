"""Run by test_fsdp.py on several processes: shards models in several ways and prints what came of it."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from footplate.arguments.fsdp_config import FsdpSettings
from footplate.distributed.fsdp import (
    FsdpStrategy,
    full_state_dict,
    is_sharded,
    load_full_state_dict,
    recompute_activations,
)
from footplate.distributed.strategy import Strategy
from sharded import build, build_optimizer, make_batch

CPU = torch.device("cpu")
UPDATES, MICRO_BATCHES, MAX_NORM = 4, 2, 0.05


def train(model, strategy, optimizer=None):
    """A few updates with clipping and accumulation: the norms, and whether gradients were there too early."""
    optimizer = strategy.prepare_optimizer(optimizer or build_optimizer(model))
    norms, early = [], []
    for update in range(UPDATES):
        for micro_batch in range(MICRO_BATCHES):
            is_last = micro_batch == MICRO_BATCHES - 1
            no_sync = getattr(model, "no_sync", nullcontext) if not is_last else nullcontext
            with strategy.accumulate(model, is_last), no_sync():
                out = model(make_batch(update, micro_batch, dist.get_rank()))
                strategy.backward(out.square().mean() / MICRO_BATCHES)
            if not is_last:
                early.append(any(parameter.grad is not None for parameter in model.parameters()))
        norms.append(float(strategy.clip_grad_norm(model.parameters(), MAX_NORM)))
        optimizer.step()
        optimizer.zero_grad()
    return norms, any(early)


def train_plain():
    """The reference: the same updates with DDP."""
    model = DistributedDataParallel(build(seed=dist.get_rank()))

    class DdpStrategy(Strategy):
        def accumulate(self, model, sync):
            return nullcontext()

    norms, _ = train(model, DdpStrategy())
    return {name: tensor.clone() for name, tensor in model.module.state_dict().items()}, norms


def compare(reference, **settings):
    """Train a sharded model and say how far it is from the reference."""
    expected, expected_norms = reference
    strategy = FsdpStrategy(FsdpSettings(**settings), CPU)
    model = strategy.prepare_model(build(seed=dist.get_rank()))
    norms, reduced_early = train(model, strategy)
    state = full_state_dict(model)
    found = {"reduced_early": reduced_early, "has_state": state is not None}
    found["norms"] = max(abs(a - b) for a, b in zip(norms, expected_norms, strict=True))
    if state is not None:
        found["names"] = list(state) == list(expected)
        learned = [name for name in expected if "running" not in name]  # statistics are of each process
        found["weights"] = max(float((state[name] - expected[name]).abs().max()) for name in learned)
        found["is_tied"] = model.head.weight is model.embed.weight
    total = sum(parameter.numel() for parameter in model.parameters())
    found["share"] = sum(parameter.to_local().numel() for parameter in model.parameters()) / total
    found["mesh"] = list(strategy.mesh.shape)
    found["calls"] = [block.calls for block in model.blocks]
    return found


def list_units(**settings):
    """The names of the parts that were sharded one by one."""
    model = FsdpStrategy(FsdpSettings(**settings), CPU).prepare_model(build(seed=0))
    return [name for name, part in model.named_modules() if is_sharded(part)]


def find_error(action):
    """The text of the ValueError that an action raises."""
    try:
        action()
    except ValueError as error:
        return str(error)
    return ""


def check_optimizer_before():
    """An optimizer that was made of whole weights trains the sharded ones."""
    strategy = FsdpStrategy(FsdpSettings(), CPU)
    plain = build(seed=dist.get_rank())
    optimizer = build_optimizer(plain)
    model = strategy.prepare_model(plain)
    before = [parameter.to_local().clone() for parameter in model.parameters()]
    train(model, strategy, optimizer)
    pairs = zip(before, model.parameters(), strict=True)
    moved = [not torch.equal(old, new.to_local()) for old, new in pairs if old.numel()]
    stale = build(seed=0)
    stepped = build_optimizer(stale)
    stale(make_batch(0, 0, 0)).sum().backward()
    stepped.step()
    strategy = FsdpStrategy(FsdpSettings(), CPU)
    strategy.prepare_model(stale)
    refusal = find_error(lambda: strategy.prepare_optimizer(stepped))
    return {"moved": sum(moved), "of": len(moved), "stepped": refusal}


def check_empty_weights():
    """Other processes than the first begin without values, as after loading on the first one only."""
    with torch.device("cpu" if dist.get_rank() == 0 else "meta"):
        plain = build(seed=5)
    expected = build(seed=5)
    model = FsdpStrategy(FsdpSettings(), CPU).prepare_model(plain)
    pairs = zip(model.parameters(), expected.parameters(), strict=True)
    are_equal = [torch.equal(own.full_tensor(), other) for own, other in pairs]  # each one is a collective
    return {"weights": all(are_equal), "buffer": torch.equal(model.place, expected.place)}


def check_half():
    """With bf16 the layers compute in it, and weights and outputs stay in float32."""
    strategy = FsdpStrategy(FsdpSettings(), CPU, "bf16")
    model = strategy.prepare_model(build(seed=0))
    out = model(make_batch(0, 0, 0))
    out.float().sum().backward()
    weight = next(model.parameters())
    return [str(kind) for kind in (model.blocks[0].dtype, out.dtype, weight.dtype, weight.grad.dtype)]


def check_round_trip():
    """Whole weights go in and come out as they were; preparing again changes nothing."""
    strategy = FsdpStrategy(FsdpSettings(), CPU)
    model = strategy.prepare_model(build(seed=0))
    is_same = strategy.prepare_model(model) is model
    state = build(seed=9).state_dict()
    load_full_state_dict(model, state if dist.get_rank() == 0 else None)
    found = full_state_dict(model)
    is_equal = None if found is None else all(torch.equal(found[name], state[name]) for name in state)
    kinds = [is_sharded(model), is_sharded(build(seed=0))]
    return {"is_same": is_same, "is_equal": is_equal, "is_sharded": kinds}


def check_evaluation():
    """Statistics that each process has of its own batches; in evaluation, all use those of the first."""
    strategy = FsdpStrategy(FsdpSettings(), CPU)
    model = strategy.prepare_model(build(seed=0))
    model(make_batch(0, 0, dist.get_rank()))
    before = model.statistics.running_mean.tolist()
    prepared = strategy.for_evaluation(model)
    return {"is_same": prepared is model, "before": before, "after": model.statistics.running_mean.tolist()}


def check_recomputed_cache():
    """A layer that is computed twice does not fill a cache twice."""
    block = build(seed=0).blocks[0]
    recompute_activations(block)
    cache: list[torch.Tensor] = []
    block(torch.ones(2, 6), past_key_values=cache).sum().backward()
    in_training = len(cache)
    with torch.no_grad():
        block(torch.ones(2, 6), past_key_values=cache)
    return [in_training, len(cache), list(dict(block.named_parameters()))]


def run_pair():
    """Everything that two processes are enough for."""
    reference = train_plain()
    first = {
        "default": {},
        "kept": {"reshard_after_forward": False},
        "offload": {"cpu_offload": True},
        "recomputed": {"activation_checkpointing": True},
        "whole": {"wrap": "none"},
    }
    found = {name: compare(reference, **settings) for name, settings in first.items()}
    found["units"] = {
        "auto": list_units(),
        "classes": list_units(wrap="classes", layer_classes=("Linear",)),
        "size": list_units(wrap="size", min_num_params=150),
        "none": list_units(wrap="none"),
    }
    found["errors"] = {
        "class": find_error(lambda: list_units(wrap="classes", layer_classes=("Blok",))),
        "group": find_error(lambda: list_units(is_hybrid=True, shard_size=3)),
        "fp16": find_error(lambda: FsdpStrategy(FsdpSettings(), CPU, "fp16")),
    }
    found["optimizer"] = check_optimizer_before()
    found["empty"] = check_empty_weights()
    found["half"] = check_half()
    found["round_trip"] = check_round_trip()
    found["evaluation"] = check_evaluation()
    found["cache"] = check_recomputed_cache()
    return found


def run_four():
    """Two copies of two shards each."""
    return {"hybrid": compare(train_plain(), is_hybrid=True, shard_size=2), "full": compare(train_plain())}


if __name__ == "__main__":
    dist.init_process_group("gloo")
    results = run_pair() if sys.argv[1] == "pair" else run_four()
    line = json.dumps({"rank": dist.get_rank(), **results})
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    dist.destroy_process_group()
