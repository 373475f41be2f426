"""Nested tensors, and every exchange between processes: collectives have this one home."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch


def world_size() -> int:
    """How many processes train together."""
    return torch.distributed.get_world_size() if _is_distributed() else 1


def rank() -> int:
    """Which of the processes this is, counted from 0."""
    return torch.distributed.get_rank() if _is_distributed() else 0


def total_processes_number(local_rank: int) -> int:
    """How many processes were launched; the API's name, which takes the local rank."""
    return world_size()


def is_main_process(local_rank: int) -> bool:
    """Whether this local rank, -1 without a launcher, is the first of its machine."""
    return local_rank in (-1, 0)


def barrier() -> None:
    """Wait here until every process has come; one process alone goes straight on."""
    if world_size() > 1:
        torch.distributed.barrier()


def gather(tensors: Any) -> Any:
    """The rows of all processes, in rank order, of tensors shaped alike; one process gets its own back."""
    num_processes = world_size()
    if num_processes == 1:
        return tensors

    def gather_rows(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        rows = leaf.contiguous() if leaf.ndim else leaf.reshape(1)
        parts = [torch.empty_like(rows) for _ in range(num_processes)]
        torch.distributed.all_gather(parts, rows)
        return torch.cat(parts)

    return map_nested(gather_rows, tensors)


def _is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def map_nested(function: Callable[[Any], Any], value: Any) -> Any:
    """A new structure of the same types as `value`, with `function` applied to each leaf."""
    if isinstance(value, (dict, Mapping)):  # a dictionary is far quicker to tell
        return rebuild(value, {key: map_nested(function, item) for key, item in value.items()})
    if isinstance(value, (tuple, list)):
        return rebuild(value, [map_nested(function, item) for item in value])
    return function(value)


def rebuild(like: Any, items: Any) -> Any:
    """`items` in a container of the type of `like`."""
    kind = type(like)
    if kind is type(items):
        return items
    if hasattr(kind, "_fields"):  # a named tuple takes its items one by one
        return kind(*items)
    try:
        return kind(items)
    except TypeError:  # a defaultdict and its kin want something else first: the items matter, not the kind
        return items


def move_to_device(batch: Any, device: torch.device | str, non_blocking: bool = False) -> Any:
    """The batch on `device`, in new containers: whoever pops from them leaves the loader's own alone."""
    target = torch.device(device)
    if type(batch) is dict and all(
        isinstance(leaf, torch.Tensor) and leaf.device == target for leaf in batch.values()
    ):
        return batch.copy()  # what a training on the CPU always meets

    def move(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf if leaf.device == target else leaf.to(target, non_blocking=non_blocking)
        return leaf.to(target) if hasattr(leaf, "to") else leaf  # graph batches and their kin move themselves

    return map_nested(move, batch)


def find_batch_size(tensors: Any) -> int | None:
    """Rows of the first tensor or array in a nested structure; None where none has rows.

    Args:
        tensors: A tensor, an array, or a nested list, tuple or mapping of them.
    """
    if isinstance(tensors, (torch.Tensor, np.ndarray)):
        return tensors.shape[0] if tensors.ndim else None
    if isinstance(tensors, (dict, Mapping)):
        tensors = tensors.values()
    elif not isinstance(tensors, (list, tuple)):
        return None
    first = next(iter(tensors), None)
    if isinstance(first, torch.Tensor) and first.ndim:
        return first.shape[0]
    sizes = (find_batch_size(item) for item in tensors)
    return next((size for size in sizes if size is not None), None)


def nested_detach(tensors: Any) -> Any:
    """The same structure with every tensor cut from its graph.

    Args:
        tensors: A tensor, or a nested list, tuple or mapping of them; other leaves pass as they are.
    """
    if isinstance(tensors, torch.Tensor):
        return tensors.detach()
    return map_nested(lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf, tensors)


def nested_numpify(tensors: Any) -> Any:
    """The same structure with every tensor as a numpy array on the host.

    Args:
        tensors: A tensor, or a nested list, tuple or mapping of them; other leaves pass as they are.
    """

    def numpify(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        host = leaf.detach().cpu()
        return (host.float() if host.dtype == torch.bfloat16 else host).numpy()  # numpy knows no bfloat16

    return map_nested(numpify, tensors)


def nested_truncate(tensors: Any, limit: int) -> Any:
    """The first `limit` rows of every tensor or array in the structure.

    Args:
        tensors: A tensor, an array, or a nested list, tuple or mapping of them.
        limit: How many rows to keep.
    """
    return map_nested(lambda leaf: None if leaf is None else leaf[:limit], tensors)


def nested_concat(tensors: Any, new_tensors: Any, padding_index: int = -100) -> Any:
    """`new_tensors` below `tensors`, padded along dimension 1 where their lengths differ.

    Args:
        tensors: A tensor, an array, or a nested list, tuple or mapping of them.
        new_tensors: The same structure with the rows to append.
        padding_index: The value of the padding.
    """
    return nested_join([tensors, new_tensors], padding_index)


def nested_join(batches: Sequence[Any], padding_index: int = -100) -> Any:
    """All batches below one another in one copy, padded along dimension 1 where their lengths differ."""
    first = batches[0]
    if len(batches) == 1:
        return first
    _check_same_structure(batches)
    if isinstance(first, Mapping):
        return rebuild(
            first, {key: nested_join([batch[key] for batch in batches], padding_index) for key in first}
        )
    if isinstance(first, (tuple, list)):
        return rebuild(first, [nested_join(column, padding_index) for column in zip(*batches, strict=True)])
    if isinstance(first, (torch.Tensor, np.ndarray)):
        return _join_rows(batches, padding_index)
    if first is None:
        return None
    raise TypeError(
        f"Batches of {type(first).__name__} cannot be joined: give tensors, arrays, or structures of them."
    )


def _check_same_structure(batches: Sequence[Any]) -> None:
    """Refuse batches that do not line up, rather than drop what has no partner."""
    first = batches[0]
    for batch in batches[1:]:
        if not (isinstance(first, torch.Tensor) and isinstance(batch, torch.Tensor)) and type(
            batch
        ) is not type(first):
            raise TypeError(
                f"A batch of {type(batch).__name__} cannot be joined to one of {type(first).__name__}."
            )
        if isinstance(first, Mapping) and batch.keys() != first.keys():
            raise ValueError(
                f"A batch with keys {list(batch)} cannot be joined to one with keys {list(first)}."
            )
        if isinstance(first, (tuple, list)) and len(batch) != len(first):
            raise ValueError(f"A batch of {len(batch)} parts cannot be joined to one of {len(first)} parts.")


def _join_rows(parts: Sequence[Any], padding_index: int) -> Any:
    """Tensors, or arrays, below one another."""
    if len(parts) > 2 and len({part.dtype for part in parts}) > 1:
        # each join may change the type, so their order decides the result
        return reduce(lambda joined, part: _join_rows([joined, part], padding_index), parts)
    is_tensor = isinstance(parts[0], torch.Tensor)
    parts = [part if part.ndim else part.reshape(1) for part in parts]
    first = parts[0]
    for part in parts:
        if part.ndim != first.ndim or part.shape[2:] != first.shape[2:]:
            raise ValueError(
                f"Batches of shape {tuple(first.shape)} and {tuple(part.shape)} cannot be joined: only "
                "dimensions 0 and 1 may differ. Set eval_do_concat_batches=False to keep the batches apart."
            )
    if len({part.shape[1:2] for part in parts}) == 1:
        return torch.cat(list(parts)) if is_tensor else np.concatenate(parts)

    shape = (sum(len(part) for part in parts), max(part.shape[1] for part in parts), *first.shape[2:])
    joined = (
        first.new_full(shape, padding_index) if is_tensor else np.full_like(first, padding_index, shape=shape)
    )
    row = 0
    for part in parts:
        joined[row : row + len(part), : part.shape[1]] = part
        row += len(part)
    return joined
