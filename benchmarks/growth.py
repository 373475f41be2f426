"""How cost grows with tensors, rows, log lines and checkpoints: `make growth` measures, prints and draws."""

from __future__ import annotations

import argparse
import csv
import math
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from measure import Result, run_script, show_progress
from plot import Points, draw_plot
from reports import FOLDER, describe_machine, print_machine, write_report
from tables import print_table

IMAGES = Path(__file__).parent.parent / "docs" / "images"
Lines = dict[str, Points]
TIMEOUT_SECONDS = 1800
# size: updates in a block and blocks
TENSORS = {10: (50, 40), 100: (50, 20), 1_000: (10, 16), 10_000: (2, 12)}
# size: turns
ROWS = {1_000: 12, 10_000: 6, 100_000: 3, 1_000_000: 1}
NUM_SHORT_RUNS = 5  # the first lines and checkpoints of a run are few and soon timed


def run(script: str, settings: Result) -> Result:
    """One process; its error ends the measurement."""
    show_progress(f"{script} {settings}"[:60])
    result = run_script(f"growing.{script}", settings, TIMEOUT_SECONDS)
    show_progress("")
    if "error" in result:
        raise RuntimeError(f"growing.{script}: {result['error']}")
    return result


def measure_tensors(options: argparse.Namespace) -> Lines:
    """CPU microseconds per update."""
    lines: Lines = {"expert": [], "footplate": []}
    for size, (block_steps, num_blocks) in list(TENSORS.items())[: 2 if options.quick else None]:
        settings = {"size": size, "block_steps": block_steps, "blocks": 5 if options.quick else num_blocks}
        add_medians(lines, size, run("tensors", settings), scale=1e6)
    return lines


def measure_rows(options: argparse.Namespace) -> Lines:
    """CPU microseconds per evaluated row."""
    lines: Lines = {"expert": [], "footplate": []}
    for size, num_turns in list(ROWS.items())[: 2 if options.quick else None]:
        settings = {"size": size, "turns": 1 if options.quick else num_turns}
        add_medians(lines, size, run("rows", settings), scale=1e6)
    return lines


def measure_lines(options: argparse.Namespace) -> Lines:
    """CPU microseconds per update: with a log line when so many are there, and without a log."""
    short, long = ([10, 100], []) if options.quick else ([10, 100, 1_000], [10_000, 100_000])
    lines: Lines = {}
    for name, logs in (("without a log", False), ("with a log line", True)):
        lines[name] = measure_positions("lines", short, long, {"logs": logs}, scale=1e6)
    return lines


def measure_checkpoints(options: argparse.Namespace) -> Lines:
    """CPU milliseconds per save and the update before it when so many checkpoints are there."""
    short, long = ([1, 10], []) if options.quick else ([1, 10, 100], [1_000])
    return {
        "all are kept": measure_positions("checkpoints", short, long, {"limit": None}, scale=1e3),
        "10 are kept": measure_positions("checkpoints", short, long, {"limit": 10}, scale=1e3),
    }


def measure_history(options: argparse.Namespace) -> Lines:
    """CPU milliseconds per save and the update before it when so many lines were logged."""
    lines: Lines = {"footplate": []}
    for size in (10, 100) if options.quick else (10, 100, 1_000, 10_000, 100_000):
        add_medians(lines, size, run("history", {"size": size}), scale=1e3)
    return lines


def measure_positions(
    script: str, short: list[int], long: list[int], settings: Result, scale: float
) -> Points:
    """What one more costs at each position of a run: medians of short runs, then those of one long run."""
    runs = [run(script, settings | {"sizes": short}) for _ in range(NUM_SHORT_RUNS if long else 1)]
    points = [
        (float(size), scale * statistics.median(value for found in runs for value in found[str(size)]))
        for size in short
    ]
    if long:
        found = run(script, settings | {"sizes": long})
        points += [(float(size), scale * found[str(size)][0]) for size in long]
    return points


def add_medians(lines: Lines, size: int, found: Result, scale: float) -> None:
    """One more point on each line."""
    for name, points in lines.items():
        points.append((float(size), scale * statistics.median(found[name])))


GROWTHS: dict[str, tuple[Callable[[argparse.Namespace], Lines], str, str]] = {
    "tensors": (measure_tensors, "parameter tensors of the model", "CPU µs per update"),
    "rows": (measure_rows, "rows of one evaluation, batch 8", "CPU µs per row"),
    "lines": (measure_lines, "lines logged so far", "CPU µs per update"),
    "checkpoints": (measure_checkpoints, "checkpoints written so far", "CPU ms per update with a save"),
    "history": (measure_history, "lines logged before a save", "CPU ms per update with a save"),
}


def find_slope(points: Points) -> float:
    """By which power of the size the cost grew over the last factor of ten: 0 constant, 1 linear."""
    (x, y), (to_x, to_y) = points[-2:]
    return math.log(to_y / y) / math.log(to_x / x)


def print_growth(name: str, lines: Mapping[str, Points]) -> None:
    """A table of one plot's points."""
    _, x_name, y_name = GROWTHS[name]
    sizes = [x for x, _ in next(iter(lines.values()))]
    header = [x_name, *(f"{size:,.0f}" for size in sizes), "power of the last step"]
    rows = [
        [label, *(f"{y:,.3g}" if y < 100 else f"{y:,.0f}" for _, y in points), f"{find_slope(points):.2f}"]
        for label, points in lines.items()
    ]
    print_table(y_name, header, rows)


def write_csv(name: str, lines: Mapping[str, Points]) -> None:
    """The points of one plot in `results/growth-<name>.csv`."""
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"growth-{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["line", GROWTHS[name][1], GROWTHS[name][2]])
        writer.writerows([label, x, y] for label, points in lines.items() for x, y in points)


def main() -> None:
    """Measure what was asked for, print and draw it; a quick run draws into `results/`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=GROWTHS, default=list(GROWTHS), help="plots to make")
    parser.add_argument("--quick", action="store_true", help="a smoke run: its figures mean nothing")
    options = parser.parse_args()
    report: dict[str, Any] = {"quick": options.quick} | describe_machine()
    print_machine(report)
    for name in options.only:
        measure, x_name, y_name = GROWTHS[name]
        lines = report[name] = measure(options)
        print_growth(name, lines)
        write_csv(name, lines)
        folder = FOLDER if options.quick else IMAGES
        title = f"{y_name} by {x_name}"
        (folder / f"growth-{name}.svg").write_text(draw_plot(title, x_name, y_name, lines), encoding="utf-8")
    print(f"\nEvery point: {write_report(report, '-growth')}")


if __name__ == "__main__":
    main()
