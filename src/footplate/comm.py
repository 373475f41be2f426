"""Nested tensors, and every exchange between processes: no other file calls a collective."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import reduce
from typing import Any

import numpy as np
import torch

from footplate import meeting
from footplate.batch import IGNORED_LABEL


def is_distributed() -> bool:
    """Whether a process group exists."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def world_size() -> int:
    """How many processes train together."""
    return torch.distributed.get_world_size() if is_distributed() else 1


def rank() -> int:
    """The number of this process, from 0."""
    return torch.distributed.get_rank() if is_distributed() else 0


def total_processes_number(local_rank: int) -> int:
    """How many processes train together; the API has this parameter, which is not used."""
    return world_size()


def is_main_process(local_rank: int) -> bool:
    """Whether this local rank is the first on its machine; -1 means that no launcher started the process."""
    return local_rank in (-1, 0)


def barrier() -> None:
    """Wait until every process has reached this call; a single process does not wait."""
    if world_size() > 1:
        torch.distributed.barrier()


def join(backend: str, timeout: timedelta) -> None:
    """Meet the other processes that a launcher started.

    Args:
        backend: What carries the exchanges, such as "gloo" or "cpu:gloo,cuda:nccl".
        timeout: How long to wait for another process before an exchange fails.
    """
    if not meeting.outlives_processes():
        torch.distributed.init_process_group(backend, timeout=timeout)
        return
    from torch._C._distributed_c10d import PrefixStore  # torch can be built without it
    from torch.distributed.rendezvous import rendezvous

    store, number, count = next(rendezvous("env://", timeout=timeout))
    name = meeting.choose_name(store, number, count, timeout)
    fresh = PrefixStore(f"footplate/{name}", store)
    torch.distributed.init_process_group(backend, timeout=timeout, store=fresh, rank=number, world_size=count)


def exchange_device() -> torch.device:
    """Where small tensors are exchanged: on the CPU if the group can, else on the accelerator."""
    config = str(torch.distributed.get_backend_config())
    if "gloo" in config or "mpi" in config:
        return torch.device("cpu")
    accelerator = torch.accelerator.current_accelerator()
    return torch.device("cpu") if accelerator is None else accelerator


def sum_integers(values: Sequence[int]) -> list[int]:
    """The sums of these numbers over all processes, in one exchange."""
    if world_size() == 1:
        return list(values)
    sums = torch.tensor(values, dtype=torch.int64, device=exchange_device())
    torch.distributed.all_reduce(sums)
    totals: list[int] = sums.tolist()
    return totals


def sum_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """The sum of a tensor over all processes, on every process; the tensor itself stays as it is."""
    if world_size() == 1:
        return tensor
    total = tensor.detach().clone()
    torch.distributed.all_reduce(total)
    return total


def average_gradients(gradients: list[torch.Tensor]) -> None:
    """Replace each gradient by its mean over all processes, as DDP does: divided first, then added."""
    for gradient in gradients:
        gradient.div_(world_size())
    if gradients:
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        torch.distributed.all_reduce(flat)
        parts = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))


def broadcast_tensors(tensors: Iterable[torch.Tensor]) -> None:
    """Overwrite tensors by those of the first process."""
    if world_size() > 1:
        for tensor in tensors:
            torch.distributed.broadcast(tensor.data, src=0)


def gather_objects_to_first(value: Any) -> list[Any] | None:
    """The plain values of all processes in the order of ranks, on the first process; None on the others."""
    if world_size() == 1:
        return [value]
    values: list[Any] | None = [None] * world_size() if rank() == 0 else None
    torch.distributed.gather_object(value, values, dst=0)
    return values


def ask_first(function: Callable[[], Any]) -> Any:
    """What `function` returns on the first process, on every process; an error there is raised on all."""
    if world_size() == 1:
        return function()
    result, error = None, None
    if rank() == 0:
        try:
            result = function()
        except Exception as raised:
            error = raised
    result, error = broadcast_object((result, error))
    if error is not None:
        raise error
    return result


def raise_together(error: Exception | None) -> None:
    """Raise on every process the error that one of them has; all of them call this."""
    errors = [found for found in gather_objects(error) if found is not None]
    if errors:
        raise errors[0]


def new_group() -> Any:
    """A second group of all processes, for exchanges of another thread; all of them call this."""
    return torch.distributed.new_group(backend="gloo")


def gather_objects(value: Any, group: Any = None) -> list[Any]:
    """The plain values of all processes in the order of ranks, on every process."""
    if world_size() == 1:
        return [value]
    values: list[Any] = [None] * world_size()
    torch.distributed.all_gather_object(values, value, group=group)
    return values


def is_same_everywhere(batch: Any) -> bool:
    """Whether all processes have a batch with the same content."""
    digest = hashlib.sha256(pickle.dumps(nested_numpify(batch))).digest()
    return len(set(gather_objects(digest))) == 1


def broadcast_object(value: Any, group: Any = None) -> Any:
    """The plain value of the first process, on every process."""
    if world_size() == 1:
        return value
    holder = [value]
    torch.distributed.broadcast_object_list(holder, src=0, group=group)
    return holder[0]


def find_store() -> Any:
    """The key-value store that the processes met at: it answers without waiting for others."""
    if not is_distributed():
        return None
    return torch.distributed.distributed_c10d._get_default_store()


def gather(tensors: Any) -> Any:
    """The rows of all processes in the order of ranks; the tensors must have the same shape everywhere."""
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


def nested_gather(tensors: Any, parallel_mode: Any, name: str | None = None) -> Any:
    """The rows of all processes if `parallel_mode` is "distributed", else the tensors as they are.

    Args:
        tensors: A tensor, or a nested list, tuple or mapping of them; None stays None.
        parallel_mode: `args.parallel_mode`.
        name: Not used; the API has it.
    """
    is_parallel = getattr(parallel_mode, "value", parallel_mode) == "distributed"
    return distributed_concat(tensors) if is_parallel and tensors is not None else tensors


def distributed_concat(tensor: Any, num_total_examples: int | None = None) -> Any:
    """The rows of all processes in the order of ranks, without those that a sampler added at the end.

    Args:
        tensor: A tensor, or a nested list, tuple or mapping of them.
        num_total_examples: How many rows to keep; None for all.
    """
    if not is_distributed():
        raise ValueError("distributed_concat needs processes that train together: start them with torchrun.")
    joined = gather(tensor)
    return joined if num_total_examples is None else nested_truncate(joined, num_total_examples)


def distributed_broadcast_scalars(
    scalars: Sequence[float], num_total_examples: int | None = None, device: Any = None
) -> torch.Tensor:
    """The numbers of all processes in the order of ranks, on every process.

    Args:
        scalars: The numbers of this process, as many as on every other one.
        num_total_examples: How many to keep; None for all.
        device: Where the exchange takes place.
    """
    joined: torch.Tensor = distributed_concat(torch.tensor(scalars, device=device), num_total_examples)
    return joined


@contextmanager
def torch_distributed_zero_first(local_rank: int) -> Iterator[None]:
    """Let the first process of a machine run the block before the others do.

    Args:
        local_rank: The number of this process on its machine; -1 if no launcher started it.
    """
    if local_rank not in (-1, 0):
        torch.distributed.barrier()
    yield
    if local_rank == 0:
        torch.distributed.barrier()


def map_nested(function: Callable[[Any], Any], value: Any) -> Any:
    """A new structure of the same types as `value`, with `function` applied to each leaf."""
    if isinstance(value, (dict, Mapping)):  # the test for dict is much faster than the one for Mapping
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
    except TypeError:  # such as defaultdict, which takes something else first: plain containers must do
        return items


def move_to_device(batch: Any, device: torch.device | str, non_blocking: bool = False) -> Any:
    """The batch on `device`, in new containers, so that removing keys does not change the loader's batch."""
    target = device if type(device) is torch.device else torch.device(device)
    if type(batch) is dict:
        for leaf in batch.values():
            if not isinstance(leaf, torch.Tensor) or leaf.device != target:
                break
        else:
            return batch.copy()  # the fast path: always taken in training on the CPU

    def move(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf if leaf.device == target else leaf.to(target, non_blocking=non_blocking)
        return leaf.to(target) if hasattr(leaf, "to") else leaf  # such as the batches of graph libraries

    return map_nested(move, batch)


def find_batch_size(tensors: Any) -> int | None:
    """Rows of the first tensor or array in a nested structure; None if there are no rows.

    Args:
        tensors: A tensor, an array, or a nested list, tuple or mapping of them.
    """
    if type(tensors) is dict:  # the usual batch
        tensors = tensors.values()
    elif isinstance(tensors, (torch.Tensor, np.ndarray)):
        return tensors.shape[0] if tensors.ndim else None
    elif isinstance(tensors, Mapping):
        tensors = tensors.values()
    elif not isinstance(tensors, (list, tuple)):
        return None
    first = next(iter(tensors), None)
    if isinstance(first, torch.Tensor) and first.ndim:
        return first.shape[0]
    sizes = (find_batch_size(item) for item in tensors)
    return next((size for size in sizes if size is not None), None)


def take_rows(batch: Any, rows: int | slice, num_rows: int | None = None) -> Any:
    """The same rows of everything in a batch, in new containers; a value without rows stays as it is.

    Args:
        batch: A tensor, or a nested list, tuple or mapping. A list of `num_rows` non-tensors is a column.
        rows: The index of a row, or a slice.
        num_rows: Rows of the whole batch, if `batch` is only a part of it.
    """
    num_rows = find_batch_size(batch) if num_rows is None else num_rows
    if isinstance(batch, torch.Tensor):
        return batch[rows] if batch.ndim and len(batch) == num_rows else batch
    if isinstance(batch, (dict, Mapping)):
        return {key: take_rows(item, rows, num_rows) for key, item in batch.items()}
    if isinstance(batch, (tuple, list)):
        holds_tensors = any(isinstance(item, torch.Tensor) for item in batch)
        if isinstance(batch, list) and len(batch) == num_rows and not holds_tensors:
            return batch[rows]
        return rebuild(batch, [take_rows(item, rows, num_rows) for item in batch])
    return batch


def nested_detach(tensors: Any) -> Any:
    """The same structure with every tensor detached from its graph.

    Args:
        tensors: A tensor, or a nested list, tuple or mapping of them; other leaves stay as they are.
    """
    if isinstance(tensors, torch.Tensor):
        return tensors.detach() if tensors.requires_grad else tensors
    return map_nested(lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf, tensors)


def nested_numpify(tensors: Any) -> Any:
    """The same structure with every tensor as a numpy array on the host.

    Args:
        tensors: A tensor, or a nested list, tuple or mapping of them; other leaves stay as they are.
    """

    def numpify(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        host = leaf.detach().cpu()
        return (host.float() if host.dtype == torch.bfloat16 else host).numpy()  # numpy has no bfloat16

    return map_nested(numpify, tensors)


def nested_truncate(tensors: Any, limit: int) -> Any:
    """The first `limit` rows of every tensor or array in the structure.

    Args:
        tensors: A tensor, an array, or a nested list, tuple or mapping of them.
        limit: How many rows to keep.
    """
    return map_nested(lambda leaf: None if leaf is None else leaf[:limit], tensors)


def nested_concat(tensors: Any, new_tensors: Any, padding_index: int = IGNORED_LABEL) -> Any:
    """The rows of `tensors`, then those of `new_tensors`, padded along dimension 1 to the same length.

    Args:
        tensors: A tensor, an array, or a nested list, tuple or mapping of them.
        new_tensors: The same structure with the rows to append.
        padding_index: The value of the padding.
    """
    return nested_join([tensors, new_tensors], padding_index)


def nested_join(batches: Sequence[Any], padding_index: int = IGNORED_LABEL) -> Any:
    """The rows of all batches, copied once, padded along dimension 1 to the same length."""
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
        f"Batches of {type(first).__name__} cannot be joined. Give tensors, arrays, or structures of them."
    )


def _check_same_structure(batches: Sequence[Any]) -> None:
    """Refuse batches of different structures: `zip` would drop what only one of them has."""
    first = batches[0]
    for batch in batches[1:]:
        are_tensors = isinstance(first, torch.Tensor) and isinstance(batch, torch.Tensor)
        if not are_tensors and type(batch) is not type(first):
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
    """The rows of all tensors or arrays, in one."""
    if len(parts) > 2 and len({part.dtype for part in parts}) > 1:
        # numpy and torch promote types pair by pair, so the result depends on the order of the joins
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
