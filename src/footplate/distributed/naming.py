"""Ranks by name, many of them in few words."""

from __future__ import annotations

from collections.abc import Sequence


def join_names(names: Sequence[str], most: int = 8) -> str:
    """Names in one line, shortened if there are many."""
    shown = list(names[:most])
    if len(names) > most:
        shown.append(f"{len(names) - most} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def name_ranks(numbers: Sequence[int]) -> str:
    """Ranks as in "rank 3" or "ranks 0, 2-7": neighbours are joined."""
    ordered = sorted(numbers)
    spans: list[list[int]] = []
    for number in ordered:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in spans]
    return f"{'rank' if len(ordered) == 1 else 'ranks'} {join_names(texts)}"
