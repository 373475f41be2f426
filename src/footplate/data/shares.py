"""How several processes share out an epoch: in rounds of one batch each, in the order of one process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, cycle, islice
from typing import Any, NamedTuple

FILL = "fill"  # repeat rows of the epoch's start, so that every rank gets as many, as Accelerate does
DIVIDE = "divide"  # share out the rows that are left; a rank's loss weighs as much as its rows
KEEP = "keep"  # leave batches as one process would cut them, as an evaluation wants it


@dataclass(frozen=True)
class Ranks:
    """Which of several processes this is, and what they do with a last round that is not full."""

    rank: int = 0
    count: int = 1
    ending: str = FILL


ALONE = Ranks()


class Turn(NamedTuple):
    """What one rank gets of a round."""

    rows: Any  # indices or samples; a rank that is left without gets one that does not count
    num_own: int  # how many of them count: in an evaluation, each row counts on one rank alone
    num_round: int  # rows of the epoch that all ranks together take
    offset: int = 0  # rows of the round before those of this rank
    weight: float = 1.0  # what the mean loss of the batch is multiplied by, before ranks are averaged


def deal_lists(
    lists: Iterator[tuple[Any, Any]],
    ranks: Ranks,
    batch_size: int | None,
    drop_last: bool = False,
    head: Sequence[Any] = (),
) -> Iterator[tuple[Turn, Any]]:
    """What a rank gets of each round, and what came with the round's last list.

    Args:
        lists: The index lists of one process in their order, each with something to hand on.
        ranks: Which rank, of how many.
        batch_size: Rows of a full list; None if every size is full.
        drop_last: Leave out a last round that is not full.
        head: The rows that the epoch began with, if `lists` begins later.
    """
    first = list(head)
    while round_ := list(islice(lists, ranks.count)):
        parts = [rows for rows, _ in round_]
        num_rows = sum(map(len, parts))
        first = first or list(chain.from_iterable(parts))
        if len(parts) == ranks.count and batch_size in (None, len(parts[-1])):
            own = parts[ranks.rank]
            offset = sum(map(len, parts[: ranks.rank]))
            yield Turn(own, len(own), num_rows, offset), round_[-1][1]
        elif not drop_last:
            size = batch_size or len(parts[0])
            yield deal_last(list(chain.from_iterable(parts)), ranks, size, size, first), round_[-1][1]


def deal_order(
    indices: Sequence[Any], first: int, ranks: Ranks, batch_size: int, drop_last: bool = False
) -> Iterator[tuple[Turn, None]]:
    """What `deal_lists` gives for an order that can be sliced: nothing is looked at that is not this rank's.

    Args:
        indices: The whole epoch.
        first: How many of its rows are done.
        ranks: Which rank, of how many.
        batch_size: Rows of a full batch of one rank.
        drop_last: Leave out a last round that is not full.
    """
    round_size, offset = batch_size * ranks.count, batch_size * ranks.rank
    num_full, num_left = divmod(len(indices) - first, round_size)
    for start in range(first + offset, first + num_full * round_size + offset, round_size):
        own = list(indices[start : start + batch_size])
        yield Turn(own, batch_size, round_size, offset), None
    if num_left and not drop_last:
        head = list(indices[:round_size])
        yield deal_last(list(indices[len(indices) - num_left :]), ranks, batch_size, batch_size, head), None


def deal_rounds(rounds: Iterator[list[int]], ranks: Ranks) -> Iterator[tuple[Turn, None]]:
    """What a rank gets of rounds that have any number of rows; one that cannot be divided is filled.

    Args:
        rounds: The rows of all ranks together, each round as long as they are to be.
        ranks: Which rank, of how many.
    """
    for rows in rounds:
        size = -(-len(rows) // ranks.count)
        offset = ranks.rank * size
        if size * ranks.count == len(rows):
            yield Turn(rows[offset : offset + size], size, len(rows), offset), None
        else:  # rows of the epoch's start may be longer than the budget allows for so many
            yield deal_last(rows, ranks, size, size, head=rows), None


def deal_samples(rows: list[Any], ranks: Ranks, batch_size: int, head: Sequence[Any]) -> Turn:
    """What a rank gets of a round of a stream, which is short at the end of the stream only.

    Args:
        rows: The samples of the round.
        ranks: Which rank, of how many.
        batch_size: Samples that a rank gets of a full round.
        head: The samples that the stream began with.
    """
    if len(rows) == batch_size * ranks.count:
        offset = ranks.rank * batch_size
        return Turn(rows[offset : offset + batch_size], batch_size, len(rows), offset)
    # Accelerate does not fill up the last batches of a stream: it makes them smaller, and equal
    filled_size = -(-len(rows) // ranks.count)
    return deal_last(rows, ranks, batch_size, filled_size, head)


def deal_last(rows: list[Any], ranks: Ranks, batch_size: int, filled_size: int, head: Sequence[Any]) -> Turn:
    """What a rank gets of a round that is not full.

    Args:
        rows: The rows of the round.
        ranks: Which rank, of how many.
        batch_size: Rows of a full batch.
        filled_size: Rows that every rank gets if the round is filled up.
        head: What to fill up with.
    """
    rank, count, ending = ranks.rank, ranks.count, ranks.ending
    num_rows = len(rows)
    if ending == DIVIDE:
        size, more = divmod(num_rows, count)
        start, end = rank * size + min(rank, more), (rank + 1) * size + min(rank + 1, more)
    else:
        size = filled_size if ending == FILL else batch_size
        start, end = min(rank * size, num_rows), min((rank + 1) * size, num_rows)
    own, num_own = rows[start:end], end - start
    if ending == FILL:
        filler = cycle(head or rows)
        num_before = max(rank * filled_size - num_rows, 0)  # taken by ranks before this one
        own = own + list(islice(filler, num_before, num_before + filled_size - num_own))
    weight = num_own * count / num_rows if ending == DIVIDE else 1.0
    return Turn(own or rows[:1], num_own, num_rows, start, weight)


def count_rounds(num_lists: int, ranks: Ranks, drop_last: bool) -> int:
    """Rounds in an epoch that one process cuts into `num_lists`."""
    return num_lists // ranks.count if drop_last else -(-num_lists // ranks.count)
