"""Footplate beside the loop of an expert: `make bench` prints what is to be reached, and what is.

Each figure is CPU time. Where a process can hold both sides they take turns in it; where it cannot, fresh
processes of both sides are interleaved.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from measure import Result, interleave, run_contender, run_import, run_script, show_progress
from reports import describe_machine, print_machine, write_report
from save_cost import QUICK_SAVE_STEPS, QUICK_STEPS, RUN, SAVE_STEPS, SIDES, find_costs
from tables import print_table

ORIGINAL = "transformers"
ORIGINAL_MEMORY_ROWS = (
    20_000  # it joins all earlier rows with each batch: four times the rows, sixteen times the time
)
SAVE = "save"  # the one row whose yardstick is the original
MOST_SAVE_ROUNDS = 2  # six processes each, of a quarter of a minute
STARTS_PER_ROUND = 3  # a process gives one figure of its start, and dozens of its updates


@dataclass
class Figures:
    """The samples of one row: both sides, the figure that has a limit, and that figure of the original."""

    expert: list[float]
    footplate: list[float]
    compared: list[float]
    original: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Work:
    """One row: what is done, how far the median of the compared figure may go, and how figures are shown."""

    title: str
    to_reach: float
    measure: Callable[[argparse.Namespace], Figures]
    sides: str  # format of a sample of both sides
    compared: str  # format of the compared figure
    scale: float = 1.0  # of the sides
    compared_scale: float = 1.0


def merge(results: list[Result], key: str) -> list[float]:
    """The samples of all rounds; an error of one of them is the error of the row."""
    errors = [result["error"] for result in results if "error" in result]
    if errors:
        raise RuntimeError(errors[0])
    return [value for result in results for value in result[key]]


def take_turns(script: str, settings: Result, original: Result, options: argparse.Namespace) -> Figures:
    """Processes in which both sides take turns; one more with the original in the place of footplate."""
    results = []
    for index in range(options.rounds):
        show_progress(f"{script}: round {index + 1} of {options.rounds}")
        results.append(run_script(script, settings | {"library": "footplate"}))
    figures = Figures(*(merge(results, key) for key in ("expert", "footplate", "ratio")))
    if options.original:
        show_progress(f"{script}: {ORIGINAL}")
        found = run_script(script, settings | original | {"library": ORIGINAL})
        figures.original = merge([found], "ratio")
    show_progress("")
    return figures


def measure_update(options: argparse.Namespace) -> Figures:
    """One update of a tiny MLP, blocks of 100 in turn."""
    settings = {"workload": "classes", "steps": 6001, "blocks": 60}
    short = {"steps": 2401, "blocks": 24}
    if options.quick:
        settings |= {"steps": 101, "blocks": 10}
        short = {}
    return take_turns("beside.update", settings, short, options)


def measure_evaluation(kind: str, num_rows: int, options: argparse.Namespace) -> Figures:
    """One whole evaluation or prediction, in turn."""
    settings = {"kind": kind, "rows": num_rows, "turns": 8}
    if options.quick:
        settings |= {"rows": 200, "turns": 2}
    return take_turns("beside.evaluation", settings, {"turns": 1}, options)


def measure_memory(options: argparse.Namespace) -> Figures:
    """How far the first evaluation of a process raises the peak of memory, over the size of the result."""
    num_rows = 2_000 if options.quick else 80_000
    script = "beside.first_evaluation"
    jobs = {
        side: partial(run_script, script, {"side": side, "rows": num_rows})
        for side in ("expert", "footplate")
    }
    raw = interleave(jobs, options.rounds)
    expert, footplate = (merge(raw[side], "growth") for side in jobs)
    figures = Figures(expert, footplate, footplate)
    if options.original:
        settings = {"side": ORIGINAL, "rows": min(num_rows, ORIGINAL_MEMORY_ROWS)}
        figures.original = merge([run_script(script, settings)], "growth")
    return figures


def compare_starts(
    jobs: dict[str, Callable[[], Result]],
    compare: Callable[[float, float], float],
    options: argparse.Namespace,
) -> Figures:
    """CPU time from process start to the end of a script, round by round; the first job is the yardstick."""
    raw = interleave(jobs, options.rounds if options.quick else options.rounds * STARTS_PER_ROUND)
    expert, footplate, *original = (merge(results, "total_cpu") for results in raw.values())
    return Figures(
        expert,
        footplate,
        [compare(own, other) for own, other in zip(footplate, expert, strict=True)],
        [compare(own, other) for own, other in zip(original[0], expert, strict=True)] if original else [],
    )


def measure_start(options: argparse.Namespace) -> Figures:
    """A whole script with a run of one update."""
    scripts = ["tuned_loop", "footplate_trainer", *(["transformers_trainer"] if options.original else [])]
    settings = {"workload": "classes", "steps": 1, "skip_steps": 0}
    jobs = {script: partial(run_contender, script, settings) for script in scripts}
    return compare_starts(jobs, lambda own, other: own / other, options)


def measure_import(options: argparse.Namespace) -> Figures:
    """The import of the Trainer, which imports torch, above that of torch alone."""
    statements = ["import torch", "from footplate import Trainer, TrainingArguments"]
    statements += [f"from {ORIGINAL} import Trainer, TrainingArguments"] if options.original else []
    jobs = {statement: partial(run_import, statement) for statement in statements}
    return compare_starts(jobs, lambda own, other: own - other, options)


def measure_logging(options: argparse.Namespace) -> Figures:
    """Runs that log at every update above runs that never do; the sides are those two."""
    settings = {"library": "footplate", "steps": 2_000, "skip_steps": 100, "turns": 5}
    if options.quick:
        settings |= {"steps": 60, "skip_steps": 10, "turns": 2}
    results = [run_script("beside.logging", settings) for _ in range(options.rounds)]
    figures = Figures(*(merge(results, key) for key in ("quiet", "logging", "above")))
    if options.original:
        found = run_script("beside.logging", settings | {"library": ORIGINAL, "turns": 2})
        figures.original = merge([found], "above")
    return figures


def measure_saves(options: argparse.Namespace) -> Figures:
    """CPU time that a save adds to a run, over what it adds with the original."""
    steps, save_steps = (QUICK_STEPS, QUICK_SAVE_STEPS) if options.quick else (RUN["steps"], SAVE_STEPS)
    jobs = {
        f"{side}, {way}": partial(
            run_script, "save_cost", RUN | {"side": side, "steps": steps, "save_steps": every}
        )
        for side in SIDES
        for way, every in (("saves", save_steps), ("no saves", 0))
    }
    raw = interleave(jobs, min(options.rounds, MOST_SAVE_ROUNDS))
    for results in raw.values():
        merge(results, "run_cpu")  # raises what went wrong
    costs = {side: find_costs(raw, side, steps // save_steps) for side in SIDES}
    ratios = [own / other for own, other in zip(costs["footplate"], costs[ORIGINAL], strict=True)]
    return Figures(costs["expert"], costs["footplate"], ratios, [1.0])


WORKS = {
    "update": Work(
        "one update, tiny MLP, batch 8", 0.90, measure_update, sides="{:.0f} µs", compared="{:.2f}", scale=1e6
    ),
    "evaluation": Work(
        "evaluation, 20,000 rows of 512 logits, batch 8, accuracy",
        1.00,
        partial(measure_evaluation, "fixed", 20_000),
        sides="{:.2f} s",
        compared="{:.2f}",
    ),
    "prediction": Work(
        "prediction, 10,000 ragged rows of 4 to 128 x 16, batch 8",
        1.05,
        partial(measure_evaluation, "ragged", 10_000),
        sides="{:.2f} s",
        compared="{:.2f}",
    ),
    "memory": Work(
        "first evaluation of a process, 80,000 x 512: growth of the peak over the result",
        1.15,
        measure_memory,
        sides="{:.2f} x",
        compared="{:.2f} x",
    ),
    "start": Work(
        "process start to the end of the first update",
        1.08,
        measure_start,
        sides="{:.2f} s",
        compared="{:.2f}",
    ),
    "import": Work(
        "import of the Trainer, above torch", 0.20, measure_import, sides="{:.2f} s", compared="{:.2f} s"
    ),
    "log": Work(
        "a log at every update, above an update without",
        120.0,
        measure_logging,
        sides="{:.0f} µs",
        compared="{:.0f} µs",
        scale=1e6,
        compared_scale=1e6,
    ),
    SAVE: Work(
        "CPU time of a save, 720 MB, over the original's",
        1.20,
        measure_saves,
        sides="{:.2f} s",
        compared="{:.2f}",
    ),
}
HEADER = ["work", "expert: best, median", "footplate: best, median", "compared: median (quartiles)"]
HEADER += ["the original", "to reach", ""]
NOTES = f"""Quartiles are those of single turns or processes. The sides of the row of the log are updates of
footplate without and with a log. The original is measured once; its memory with {ORIGINAL_MEMORY_ROWS:,}
rows. It is the yardstick of the save, a row that is left out where it is not installed."""


def format_row(work: Work, figures: Figures) -> list[str]:
    """The cells of one row. The median decides."""
    sides = [
        ", ".join(
            work.sides.format(work.scale * value) for value in (min(samples), statistics.median(samples))
        )
        for samples in (figures.expert, figures.footplate)
    ]
    compared = [work.compared_scale * value for value in figures.compared]
    middle = statistics.median(compared)
    low, _, high = statistics.quantiles(compared, n=4) if len(compared) > 1 else [middle] * 3
    shown = f"{work.compared.format(middle)} ({work.compared.format(low)} to {work.compared.format(high)})"
    original = "-"
    if figures.original:
        original = work.compared.format(work.compared_scale * statistics.median(figures.original))
    verdict = "reached" if middle <= work.to_reach else "behind"
    return [work.title, *sides, shown, original, work.compared.format(work.to_reach), verdict]


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=WORKS, default=list(WORKS), help="rows to measure")
    parser.add_argument("--rounds", type=int, help="processes per row (default: 3; 1 with --quick)")
    parser.add_argument("--quick", action="store_true", help="a smoke run: its figures mean nothing")
    parser.add_argument(
        "--original", action=argparse.BooleanOptionalAction, help="measure transformers too, if installed"
    )
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    if options.original is None:
        options.original = importlib.util.find_spec(ORIGINAL) is not None
    if not options.original:
        options.only = [name for name in options.only if name != SAVE]
    return options


def main() -> None:
    """Measure what was asked for, print the table, write every sample."""
    options = parse_options()
    report: dict[str, Any] = {"rounds": options.rounds, "quick": options.quick} | describe_machine()
    print_machine(report)
    rows = []
    for name in options.only:
        try:
            figures = WORKS[name].measure(options)
        except RuntimeError as error:  # the other rows are still worth having
            report[name] = {"error": str(error)}
            rows.append([WORKS[name].title, f"failed: {error}".replace("|", "/")])
            continue
        report[name] = asdict(figures)
        rows.append(format_row(WORKS[name], figures))
    title = "Footplate beside the loop of an expert, CPU time"
    print_table(
        title + (": a smoke run, whose figures mean nothing" if options.quick else ""), HEADER, rows, 90
    )
    print(f"\n{NOTES}")
    print(f"\nEvery single measurement: {write_report(report, '-limits')}")


if __name__ == "__main__":
    main()
