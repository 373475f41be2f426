"""Run by test_sharded.py on several processes: saves and loads sharded models and prints what came of it."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from footplate.arguments.fsdp_config import FsdpSettings
from footplate.checkpoint.sharded import copy_shards, load_shards, save_shards, write_shards
from footplate.distributed.fsdp import FsdpStrategy
from sharded import build, build_optimizer, make_batch


def prepare(seed, **settings):
    """A sharded model and its optimizer."""
    model = FsdpStrategy(FsdpSettings(**settings), torch.device("cpu")).prepare_model(build(seed))
    return model, build_optimizer(model)


def update(model, optimizer, number):
    """One update on the same batch on all processes, so that any number of them does the same."""
    model(make_batch(number, 0, 0)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def gather(model, optimizer):
    """Whole weights and whole optimizer state, by names and numbers."""
    whole = {name: to_whole(tensor) for name, tensor in model.state_dict().items()}
    state = optimizer.state_dict()["state"]
    return whole | {f"{n}/{key}": to_whole(value) for n, part in state.items() for key, value in part.items()}


def to_whole(tensor):
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()


def is_equal(one, other):
    """Whether two gathered states are equal to the last bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def load_into_sharded(folder, **settings):
    """Load a checkpoint into a fresh sharded model with another seed."""
    model, optimizer = prepare(seed=77, **settings)
    result = load_shards(folder, model, optimizer)
    return (
        gather(model, optimizer),
        [*result.missing_keys, *result.unexpected_keys],
        optimizer.param_groups[0]["lr"],
    )


def load_into_ddp(folder):
    """Load a checkpoint into a fresh model under DDP."""
    model = DistributedDataParallel(build(78))
    optimizer = build_optimizer(model)
    load_shards(folder, model, optimizer)
    return gather(model.module, optimizer)


def write_in_background(folder, model, optimizer):
    """Copy, train on, and write the copy by a thread with a process group of its own."""
    group = dist.new_group(backend="gloo")
    copies = copy_shards(model, optimizer)
    writer = threading.Thread(target=write_shards, args=(folder, copies, group))
    writer.start()
    for number in range(5, 8):
        update(model, optimizer, number)
    writer.join()
    dist.barrier()


def find_error(action):
    try:
        action()
    except ValueError as error:
        return str(error)
    return ""


def run_pair(folder):
    """Plain to sharded, sharded to sharded, sharded to DDP, and back."""
    expected = torch.load(folder / "plain.pt")
    from_plain, lost, rate = load_into_sharded(folder / "plain")
    found = {"from_plain": is_equal(from_plain, expected), "lost": lost, "rate": rate}
    found["from_bin"] = is_equal(load_into_sharded(folder / "bin")[0], expected)
    found["from_one"] = is_equal(load_into_sharded(folder / "one")[0], expected)

    model, optimizer = prepare(seed=5)
    for number in range(3):
        update(model, optimizer, number)
    optimizer.param_groups[0]["lr"] = 0.007
    save_shards(folder / "two", model, optimizer)
    whole = gather(model, optimizer)
    if dist.get_rank() == 0:
        torch.save(whole, folder / "two.pt")
    again, lost, rate = load_into_sharded(folder / "two")
    found |= {"again": is_equal(again, whole), "again_lost": lost, "again_rate": rate}
    found["ddp"] = is_equal(load_into_ddp(folder / "two"), whole)

    write_in_background(folder / "background", model, optimizer)
    found["went_on"] = not is_equal(gather(model, optimizer), whole)
    found["background"] = is_equal(load_into_sharded(folder / "background")[0], whole)
    save_shards(folder / "weights", model)
    found["only_weights"] = load_into_sharded(folder / "weights")[2]
    found["misfit"] = find_error(lambda: load_shards(folder / "misfit", model, optimizer))
    return found


def run_four(folder):
    """From two processes to four, in one row and as two copies."""
    whole = torch.load(folder / "two.pt")
    full, _, _ = load_into_sharded(folder / "two")
    hybrid, _, _ = load_into_sharded(folder / "two", is_hybrid=True, shard_size=2)
    model, optimizer = prepare(seed=5, is_hybrid=True, shard_size=2)
    load_shards(folder / "two", model, optimizer)
    save_shards(folder / "hybrid", model, optimizer)
    again, _, _ = load_into_sharded(folder / "hybrid")
    return {"full": is_equal(full, whole), "hybrid": is_equal(hybrid, whole), "again": is_equal(again, whole)}


if __name__ == "__main__":
    dist.init_process_group("gloo")
    place = Path(sys.argv[2])
    results = run_pair(place) if sys.argv[1] == "pair" else run_four(place)
    sys.stdout.write(json.dumps({"rank": dist.get_rank(), **results}) + "\n")
    sys.stdout.flush()
    dist.destroy_process_group()
