"""Lines on two logarithmic axes as SVG, in colours that read on light and on dark pages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

WIDTH, HEIGHT = 460, 260
LEFT, RIGHT, TOP, BOTTOM = 70, 36, 40, 44
GREY, COLORS = "#808890", ("#d9772b", "#3b82d6")  # the yardstick, and what is measured
Points = list[tuple[float, float]]


def find_decades(values: list[float]) -> tuple[int, int]:
    """The powers of ten around all values; at least one decade apart."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def draw_plot(title: str, x_name: str, y_name: str, lines: Mapping[str, Points]) -> str:
    """One picture of one line or two; each has its name and colour at the top."""
    points = [point for line in lines.values() for point in line]
    x_low, x_high = find_decades([x for x, _ in points])
    y_low, y_high = find_decades([y for _, y in points])

    def place_x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log10(value) - x_low) / (x_high - x_low)

    def place_y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (math.log10(value) - y_low) / (y_high - y_low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="sans-serif" font-size="12" fill="{GREY}">',
        f"<title>{escape(title)}</title>",
    ]
    for power in range(x_low, x_high + 1):
        x = place_x(10.0**power)
        parts.append(draw_rule(x, TOP, x, HEIGHT - BOTTOM))
        parts.append(draw_text(x, HEIGHT - BOTTOM + 16, name_power(power), "middle"))
    for power in range(y_low, y_high + 1):
        y = place_y(10.0**power)
        parts.append(draw_rule(LEFT, y, WIDTH - RIGHT, y))
        parts.append(draw_text(LEFT - 6, y + 4, name_power(power), "end"))
    parts.append(draw_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_name, "middle"))
    parts.append(draw_text(6, 16, y_name, "start"))
    for index, ((name, line), color) in enumerate(zip(lines.items(), COLORS[-len(lines) :], strict=True)):
        places = [(place_x(x), place_y(y)) for x, y in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in places]
        end = WIDTH - RIGHT - 120 * (len(lines) - 1 - index)
        parts.append(draw_text(end, 32, name, "end", color))
    return "\n".join([*parts, "</svg>\n"])


def draw_rule(x: float, y: float, to_x: float, to_y: float) -> str:
    """A thin line of the grid."""
    ends = f'x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"'
    return f'<line {ends} stroke="{GREY}" stroke-opacity="0.3"/>'


def draw_text(x: float, y: float, text: str, anchor: str, color: str = GREY) -> str:
    """A word or a number."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}">{escape(text)}</text>'


def name_power(power: int) -> str:
    """A power of ten as people write it."""
    return f"{10**power:,}" if power >= 0 else f"{10.0**power:.{-power}f}"
