"""Which modules are measured one by one, and which together: a page has no room for thousands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from footplate.words import keep_end

MAX_ENTRIES, MAX_NAME = 500, 200
FEW = 10  # so few entries say little of a large model


class Entry(NamedTuple):
    """A module, or several that are measured together."""

    name: str
    places: list[int]  # of its parameters, among all


def plan_entries(owned: Sequence[tuple[str, int]], max_entries: int = MAX_ENTRIES) -> list[Entry]:
    """At most `max_entries` entries, in the order of the model.

    Modules below a certain depth are joined into the one above them, at the greatest depth that leaves few
    enough. Where this would leave almost none, as with a thousand layers in one list, neighbours are joined.

    Args:
        owned: The name of each module, and how many parameters it has.
        max_entries: The most that there may be.
    """
    names = [name for name, _ in owned]
    depth = max((_depth_of(name) for name in names), default=0)
    while depth and _count(names, depth) > max_entries:
        depth -= 1
    is_cut = any(_depth_of(name) > depth for name in names)
    if is_cut and _count(names, depth) < min(FEW, max_entries / 10):
        labels = _join_neighbours([_cut(name, depth + 1) for name in names], max_entries)
    else:
        labels = [_cut(name, depth) for name in names]
    places: dict[str, list[int]] = {}
    first = 0
    for label, (_, num_parameters) in zip(labels, owned, strict=True):
        places.setdefault(label, []).extend(range(first, first + num_parameters))
        first += num_parameters
    return [Entry(keep_end(label, MAX_NAME), own) for label, own in places.items()]


def _join_neighbours(names: Sequence[str], max_entries: int) -> list[str]:
    """A label for each name; those that follow each other below the same parent share one."""
    distinct = list(dict.fromkeys(names))
    size, labels = math.ceil(len(distinct) / max_entries), dict[str, str]()
    while not labels or len(set(labels.values())) > max_entries:
        for _, group in groupby(distinct, lambda name: name.rpartition(".")[0]):
            siblings = list(group)
            for start in range(0, len(siblings), size):
                part = siblings[start : start + size]
                label = part[0] if len(part) == 1 else f"{part[0]} … {part[-1].rpartition('.')[2]}"
                labels.update(dict.fromkeys(part, label))
        if size > len(distinct):
            break  # as many parents: they cannot be joined further
        size += 1
    return [labels[name] for name in names]


def _count(names: Sequence[str], depth: int) -> int:
    return len({_cut(name, depth) for name in names})


def _depth_of(name: str) -> int:
    return name.count(".") + 1


def _cut(name: str, depth: int) -> str:
    return ".".join(name.split(".")[:depth])
