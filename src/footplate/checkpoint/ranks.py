"""What differs from rank to rank in a checkpoint: generators, the place in the data, running sums."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from footplate.checkpoint.files import Folder, load_plain, save_plain
from footplate.checkpoint.rng import rng_name

RANKS_NAME = "ranks.pt"

RankState = dict[str, Any]  # "rng", "loader" and "sums" of one rank


def save_ranks(folder: Folder, states: list[RankState]) -> None:
    """Write what the ranks gave: generators into one file each, as the original does, the rest together."""
    for rank, state in enumerate(states):
        save_plain(state["rng"], Path(folder, rng_name(rank, len(states))))
    others = [{name: value for name, value in state.items() if name != "rng"} for state in states]
    save_plain({"ranks": others}, Path(folder, RANKS_NAME))


def load_rank(folder: Folder, rank: int, num_ranks: int) -> RankState | None:
    """The place and the sums of one rank; None if one process wrote the checkpoint.

    If as many ranks go on as there were, each gets its own. If there are more or fewer, each gets the place
    of the first, which counts the samples of all, and the mean of all sums.
    """
    path = Path(folder, RANKS_NAME)
    if not path.is_file():
        return None
    states: list[RankState] = load_plain(path)["ranks"]
    if len(states) == num_ranks:
        return states[rank]
    return {**states[0], "sums": average([state["sums"] for state in states])}


def average(values: list[Any]) -> Any:
    """The mean of numbers, in nested structures of one shape, over those that have one."""
    first = values[0]
    if isinstance(first, dict):
        names = dict.fromkeys(name for value in values for name in value)
        return {name: average([value[name] for value in values if name in value]) for name in names}
    if isinstance(first, (list, tuple)):
        return [average(list(column)) for column in zip(*values, strict=True)]
    mean = sum(values) / len(values)
    return round(mean) if isinstance(first, int) else mean


def count_ranks(folder: Folder) -> int | None:
    """How many processes wrote a checkpoint, by the files of their generators; None if it has none."""
    if Path(folder, rng_name(0, 1)).is_file():
        return 1
    return sum(1 for _ in Path(folder).glob("rng_state_*.pth")) or None
