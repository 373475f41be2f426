"""A curve drawn with characters, for a terminal of any kind."""

from __future__ import annotations

import math
from collections.abc import Sequence

WIDTH, HEIGHT = 60, 8
ABOVE = 0.4  # how much of the fall is shown above the start: an explosion would press all else together


def shown_range(losses: Sequence[float], smoothed: Sequence[float]) -> tuple[float, float]:
    """The lowest and the highest loss to show: what lies far above the start is cut off."""
    first = [*losses[: max(3, len(losses) // 10)], smoothed[0]]
    low, start = min(*losses, *smoothed), max(first)
    room = max(start - low, 0.05 * abs(start), 1e-12)
    return low, min(max(smoothed), start + ABOVE * room)


def draw_curve(rates: Sequence[float], smoothed: Sequence[float], suggestion: float | None) -> list[str]:
    """The lines of the drawing, without single losses; none for fewer than three points."""
    if len(rates) < 3:
        return []
    low, high = shown_range(smoothed, smoothed)
    start, span = math.log(rates[0]), math.log(rates[-1] / rates[0])

    def column_of(rate: float) -> int:
        return min(WIDTH - 1, max(0, round((math.log(rate) - start) / span * (WIDTH - 1))))

    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    for rate, loss in zip(rates, smoothed, strict=True):
        height = (loss - low) / ((high - low) or 1.0)
        if height <= 1.0:
            grid[round((1.0 - height) * (HEIGHT - 1))][column_of(rate)] = "*"
    labels = {0: f"{high:.3g}", HEIGHT // 2: f"{high - (high - low) * (HEIGHT // 2) / (HEIGHT - 1):.3g}"}
    labels[HEIGHT - 1] = f"{low:.3g}"
    lines = [f"{labels.get(row, ''):>10} |{''.join(cells).rstrip()}" for row, cells in enumerate(grid)]
    axis = ["-"] * WIDTH
    if suggestion is not None:
        axis[column_of(suggestion)] = "^"
    ends = f"{rates[0]:.2g}", f"{rates[-1]:.2g}"
    return ["", *lines, f"{'':>10} +{''.join(axis)}", f"{'':>12}{ends[0]}{ends[1]:>{WIDTH - len(ends[0])}}"]
