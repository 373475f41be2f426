"""A small picture of the losses, as SVG: it needs no package, and any page shows it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 28, 30  # what is left free around the curves, for numbers and names
COLORS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed")
MAX_POINTS = 400
Curve = list[tuple[float, float]]


def find_curves(history: Sequence[Mapping[str, Any]]) -> dict[str, Curve]:
    """Steps and values of the training loss, and of the loss of each evaluated set."""
    curves: dict[str, Curve] = {}
    for entry in history:
        for key, value in entry.items():
            is_loss = key == "loss" or (key.endswith("_loss") and key != "train_loss")
            if is_loss and isinstance(value, (int, float)) and math.isfinite(value) and "step" in entry:
                name = "training loss" if key == "loss" else key
                curves.setdefault(name, []).append((entry["step"], value))
    return {name: points for name, points in curves.items() if len(points) > 1}


def draw_curves(curves: Mapping[str, Curve]) -> str:
    """The picture; `curves` has at least one, each with two points or more."""
    points = [point for curve in curves.values() for point in curve]
    first, last = (pick(x for x, _ in points) for pick in (min, max))
    low, high = (pick(y for _, y in points) for pick in (min, max))
    wide, tall = (last - first) or 1, (high - low) or 1

    def place(x: float, y: float) -> str:
        across = LEFT + (x - first) / wide * (WIDTH - LEFT - RIGHT)
        return f"{across:.1f},{TOP + (high - y) / tall * (HEIGHT - TOP - BOTTOM):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<path d="M{LEFT},{TOP} V{HEIGHT - BOTTOM} H{WIDTH - RIGHT}" fill="none" stroke="#9ca3af"/>',
        _text(LEFT - 6, TOP + 4, f"{high:.3g}", "end"),
        _text(LEFT - 6, HEIGHT - BOTTOM, f"{low:.3g}", "end"),
        _text(LEFT, HEIGHT - 10, f"step {first:g}", "start"),
        _text(WIDTH - RIGHT, HEIGHT - 10, f"{last:g}", "end"),
    ]
    for index, (name, curve) in enumerate(curves.items()):
        color = COLORS[index % len(COLORS)]
        line = " ".join(place(x, y) for x, y in _thin(curve))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        parts.append(_text(LEFT + 130 * index, 16, name, "start", color))
    return "\n".join([*parts, "</svg>", ""])


def _text(x: int, y: int, text: str, anchor: str, color: str = "#374151") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{color}">{escape(text)}</text>'


def _thin(curve: Curve) -> Curve:
    stride = max(1, math.ceil(len(curve) / MAX_POINTS))
    return [*curve[:-1:stride], curve[-1]]
