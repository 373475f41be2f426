"""Join what several ranks have collected: one batch of each in turn, as one process would have met them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from footplate import comm
from footplate.evaluation.buffers import nested_bytes

BLOCK_BYTES = 32 << 20  # of each rank, sent at once


class Batch(NamedTuple):
    """One batch of one rank, as it is sent to the others."""

    values: dict[str, Any]  # predictions, labels and inputs, those that there are
    num_rows: int
    indices: Any = None  # rows of the dataset, if they are known
    losses: Any = None
    num_loss_rows: int = 0
    items: float | None = None


def merge_ranks(batches: list[Batch], take: Callable[[Batch], None], to_all: bool) -> None:
    """Hand the batches of all ranks to `take`, in the order of one process; every rank calls this.

    They are exchanged in blocks, so that what is sent does not take as much memory as the result.

    Args:
        batches: Those of this rank, in their order.
        take: Gets each batch of all ranks.
        to_all: Whether every rank gets them, or the first one alone.
    """
    gather = comm.gather_objects if to_all else comm.gather_objects_to_first
    largest = max((nested_bytes(list(batch.values.values())) for batch in batches[:8]), default=1)
    counts = comm.gather_objects((len(batches), largest))
    num_rounds = max(count for count, _ in counts)
    step = max(1, BLOCK_BYTES // max(1, max(size for _, size in counts)))
    for start in range(0, num_rounds, step):
        for batch in in_turn(gather(batches[start : start + step]) or []):
            take(batch)


def in_turn(parts: list[list[Any]]) -> Iterator[Any]:
    """The first entry of every list, then the second, and so on; lists may end early."""
    for index in range(max(map(len, parts), default=0)):
        for part in parts:
            if index < len(part):
                yield part[index]


def slice_rows(arrays: Any, start: int, end: int) -> Any:
    """The same rows of every array in a structure; None stays None."""

    def cut(leaf: Any) -> Any:
        return leaf[start:end] if isinstance(leaf, np.ndarray) and leaf.ndim else leaf

    return comm.map_nested(cut, arrays)
