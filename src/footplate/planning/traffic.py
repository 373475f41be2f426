"""The bytes that each collective moves in one update, as one rank sends them."""

from __future__ import annotations

from typing import NamedTuple

SHARDINGS = ("none", "shard_grad_op", "full_shard", "hybrid")


class Group(NamedTuple):
    """How ranks share a model: the ranks that one copy is cut over, and the number of copies."""

    num_shards: int
    num_copies: int


class Transfer(NamedTuple):
    """What one collective sends from each rank in one update, or at one evaluation."""

    name: str
    num_bytes: int


def choose_group(sharding: str, world_size: int, ranks_per_node: int) -> Group:
    """The cut that a way of sharding means; hybrid cuts inside a machine and copies between machines."""
    if sharding not in SHARDINGS:
        raise ValueError(f"sharding={sharding!r} is not known. Choose one of {', '.join(SHARDINGS)}.")
    if sharding == "none":
        return Group(1, world_size)
    if sharding == "hybrid":
        num_shards = min(ranks_per_node, world_size)
        if world_size % num_shards:
            raise ValueError(
                f"sharding='hybrid' with {world_size} ranks, {ranks_per_node} on each machine: the number of "
                "ranks must be a multiple. Change world_size or ranks_per_node."
            )
        return Group(num_shards, world_size // num_shards)
    return Group(world_size, 1)


def plan_traffic(
    sharding: str,
    group: Group,
    *,
    weight_bytes: int,
    root_bytes: int,
    gradient_bytes: int,
    accumulation: int,
    reduces_each_batch: bool = False,
    buffer_bytes: int = 0,
) -> list[Transfer]:
    """The collectives of one update, by ring algorithms: (N-1)/N of the data, twice for an all-reduce.

    Args:
        sharding: The way of sharding.
        group: Its cut.
        weight_bytes: All weights, in the precision in which they are gathered.
        root_bytes: Those of them that stay gathered from forward to backward.
        gradient_bytes: All gradients, in the precision in which they are reduced.
        accumulation: Micro-batches of an update: weights are gathered in each, gradients reduced in the last.
        reduces_each_batch: FSDP reduces gradients in each micro-batch.
        buffer_bytes: Buffers that DDP sends from the first rank before each forward.
    """
    shards, copies = group
    between = 2 * (copies - 1) / copies
    if sharding == "none":
        found = [Transfer("all-reduce of gradients", int(between * gradient_bytes))]
        if buffer_bytes and copies > 1:
            found.append(Transfer("broadcast of buffers", buffer_bytes * accumulation))
        return found
    inside = (shards - 1) / shards * accumulation
    found = [Transfer("all-gather of weights, forward", int(inside * weight_bytes))]
    if sharding != "shard_grad_op":
        found.append(Transfer("all-gather of weights, backward", int(inside * (weight_bytes - root_bytes))))
    times = accumulation if reduces_each_batch else 1
    found.append(Transfer("reduce-scatter of gradients", int((shards - 1) / shards * gradient_bytes * times)))
    if copies > 1:
        shard_bytes = gradient_bytes / shards * times
        found.append(Transfer("all-reduce between copies", int(between * shard_bytes)))
    return found
