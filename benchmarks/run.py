"""Footplate beside its rivals: `python benchmarks/run.py` measures, prints tables and writes JSON."""

from __future__ import annotations

import argparse
import json
import platform
import time
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from measure import Result, interleave, run_contender, run_import, run_kills, show_progress, summarize

CONTENDERS = {
    "hand-written": "plain_loop",
    "hand-written, tuned": "tuned_loop",
    "transformers": "transformers_trainer",
    "Lightning": "lightning_trainer",
    "Accelerate": "accelerate_loop",
    "footplate": "footplate_trainer",
}
IMPORTS = {
    "torch": "import torch",
    "transformers": "from transformers import Trainer, TrainingArguments",
    "Lightning": "import lightning",
    "Accelerate": "from accelerate import Accelerator",
    "footplate": "import footplate",
    "footplate's Trainer": "from footplate import Trainer, TrainingArguments",
}
VARIANTS: dict[str, dict[str, Any]] = {
    "tiny MLP, batch 8": {"workload": "mlp"},
    "tiny MLP, batch 8, accumulation 4": {"workload": "mlp", "accumulation": 4},
    "tiny BERT classifier, batch 8": {"workload": "bert"},
}
LENGTHS = {"mlp": {"steps": 2200, "skip_steps": 200}, "bert": {"steps": 700, "skip_steps": 100}}
SAVERS = ("transformers", "Lightning", "Accelerate", "footplate")  # the first is the yardstick
SAVES = {"workload": "tower", "batch_size": 1, "learning_rate": 1e-5, "steps": 120, "save_steps": 30}
QUICK_SAVES = SAVES | {"steps": 8, "save_steps": 4}
KILLS = {"transformers": 12, "footplate": 100}
QUICK = {"steps": 60, "skip_steps": 10}
PACKAGES = ("footplate", "torch", "transformers", "lightning", "accelerate")


def measure_steps(options: argparse.Namespace) -> dict[str, Any]:
    """CPU and wall time of one update, start-up left out."""
    raw = {}
    for title, variant in VARIANTS.items():
        settings = variant | (QUICK if options.quick else LENGTHS[variant["workload"]])
        jobs = {label: partial(run_contender, CONTENDERS[label], settings) for label in options.contenders}
        raw[title] = interleave(jobs, options.rounds)
        print_times(f"One update: {title}", raw[title], "step", "µs", 1e6)
    return raw


def measure_start(options: argparse.Namespace) -> dict[str, Any]:
    """Imports, and process start to the end of the first update."""
    imports = interleave(
        {label: partial(run_import, statement) for label, statement in IMPORTS.items()}, options.rounds
    )
    print_times("Process start to the end of the import", imports, "total", "s", 1.0)
    # the script itself, with a run of one update
    settings = {"workload": "mlp", "steps": 1, "skip_steps": 0}
    jobs = {label: partial(run_contender, CONTENDERS[label], settings) for label in options.contenders}
    first = interleave(jobs, options.rounds)
    print_times("Process start to the end of the first update", first, "total", "s", 1.0)
    return {"imports": imports, "first update": first}


def measure_saves(options: argparse.Namespace) -> dict[str, list[Result]]:
    """How long training stands still for one save, and what that costs in memory."""
    settings = QUICK_SAVES if options.quick else SAVES
    labels = [label for label in SAVERS if label in options.contenders or label == SAVERS[0]]
    raw = interleave(
        {label: partial(run_contender, CONTENDERS[label], settings) for label in labels}, options.rounds
    )
    summaries = {label: summarize(results) for label, results in raw.items()}
    yardstick = next(iter(summaries.values()))
    header = [
        "",
        "stands still best, s",
        "median",
        "best ratio",
        "median ratio",
        "slowest update median, s",
        "added in all median, s",
        "one update median, s",
        "peak memory, MB",
        "written per save, MB",
    ]
    rows = [[label, *format_saves(summary, yardstick)] for label, summary in summaries.items()]
    print_table("One save: 60 million parameters with AdamW", header, rows)
    return raw


def measure_kills(options: argparse.Namespace) -> dict[str, Result]:
    """How often a run that was killed with SIGKILL during a save cannot be resumed."""
    raw, rows = {}, []
    for label, num_tries in KILLS.items():
        if label in options.contenders or label == "footplate":
            show_progress(f"killing: {label}")
            raw[label] = run_kills(label, 3 if options.quick else num_tries)
            rows.append([label, *format_kills(raw[label])])
    show_progress("")
    header = ["", "killed while saving", "resume failed", "resumed, other weights", "first error"]
    print_table("kill -9 during a save, then resume_from_checkpoint=True", header, rows)
    return raw


def measure_padding(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The share of padding in batches, for each order of the rows."""
    from padding import ORDERS, measure_padding

    records = measure_padding(options.data)
    rows = [
        [record["source"], str(record["batch_size"]), *(format_padding(record[name]) for name in ORDERS)]
        for record in records
    ]
    print_table("Padding (in brackets: batch mates that stay together)", ["lengths", "batch", *ORDERS], rows)
    return records


BENCHMARKS = {
    "step": measure_steps,
    "start": measure_start,
    "padding": measure_padding,
    "save": measure_saves,
    "kill": measure_kills,
}


def print_times(title: str, raw: dict[str, list[Result]], key: str, unit: str, scale: float) -> None:
    """A table of best and median times; the first job is the yardstick of the ratios."""
    summaries = {label: summarize(results) for label, results in raw.items()}
    yardstick = next(iter(summaries.values()))
    header = [
        "",
        f"CPU best, {unit}",
        "CPU median",
        "above first",
        "CPU ratio",
        f"wall best, {unit}",
        "wall median",
        "wall ratio",
        "loss",
    ]
    rows = [[label, *format_times(summary, yardstick, key, scale)] for label, summary in summaries.items()]
    print_table(
        title, header if any("loss" in summary for summary in summaries.values()) else header[:-1], rows
    )


def format_times(summary: Result, yardstick: Result, key: str, scale: float) -> list[str]:
    """The cells of one job, or its error in the first of them."""
    if "error" in summary:
        return [f"failed in {summary['num_failed']} round(s): {summary['error']}".replace("|", "/")]
    digits = 0 if scale > 1 else 2
    cpu, wall = summary[f"{key}_cpu"], summary[f"{key}_wall"]
    above = ratio = wall_ratio = "-"
    if "error" not in yardstick:
        first_cpu, first_wall = yardstick[f"{key}_cpu"]["best"], yardstick[f"{key}_wall"]["best"]
        above = f"{(cpu['best'] - first_cpu) * scale:+.{digits}f}"
        ratio, wall_ratio = f"{cpu['best'] / first_cpu:.2f}", f"{wall['best'] / first_wall:.2f}"
    cells = [f"{cpu['best'] * scale:.{digits}f}", f"{cpu['median'] * scale:.{digits}f}", above, ratio]
    cells += [f"{wall['best'] * scale:.{digits}f}", f"{wall['median'] * scale:.{digits}f}", wall_ratio]
    return [*cells, f"{summary['loss']['median']:.4f}"] if "loss" in summary else cells


def format_saves(summary: Result, yardstick: Result) -> list[str]:
    """The cells of one library that saves, or its error in the first of them."""
    if "error" in summary:
        return [f"failed in {summary['num_failed']} round(s): {summary['error']}".replace("|", "/")]
    still, ratios = summary["standstill"], ["-", "-"]
    if "error" not in yardstick:
        ratios = [f"{still[key] / yardstick['standstill'][key]:.2f}" for key in ("best", "median")]
    seconds = [f"{summary[key]['median']:.2f}" for key in ("slowest", "added", "update")]
    sizes = [f"{summary[key]['median'] / 1e6:.0f}" for key in ("peak_bytes", "written_bytes")]
    return [f"{still['best']:.2f}", f"{still['median']:.2f}", *ratios, *seconds, *sizes]


def format_kills(counts: Result) -> list[str]:
    """The cells of one library that was killed, or its error in the first of them."""
    if "error" in counts:
        return [f"failed: {counts['error']}".replace("|", "/")]
    error = (counts["errors"] or ["-"])[0].replace("|", "/")
    return [*(str(counts[key]) for key in ("kills", "failed", "differs")), error]


def format_padding(result: Result) -> str:
    """Padding as a percentage, with the share of batch mates that stayed together."""
    if "error" in result:
        return f"failed: {result['error']}".replace("|", "/")
    return f"{result['padding']:.0%} ({result['shared_mates']:.0%})"


def print_table(title: str, header: list[str], rows: list[list[str]]) -> None:
    """A Markdown table whose columns also line up in a terminal."""
    # an error is longer than any figure and must not stretch its column
    widths = [
        max(len(row[column]) for row in [header, *rows] if column < len(row) and len(row[column]) <= 40)
        for column in range(len(header))
    ]
    lines = [header, ["-" * max(3, width) for width in widths], *rows]
    print(f"\n### {title}\n")
    for line in lines:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False)) + " |")


def describe_machine() -> dict[str, Any]:
    """The versions and the machine that the figures belong to."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {"python": platform.python_version(), "machine": platform.platform(), "versions": versions}


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS), help="benchmarks to run"
    )
    parser.add_argument(
        "--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), help="rivals to run"
    )
    parser.add_argument(
        "--rounds", type=int, help="fresh processes per contender (default: 5; 1 with --quick)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a smoke run: short, and its figures mean nothing"
    )
    parser.add_argument("--data", type=Path, help="folder of */train.csv files for the padding benchmark")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 5)
    yardstick = next(iter(CONTENDERS))
    # the yardstick always runs, and first
    options.contenders = [yardstick, *(label for label in options.contenders if label != yardstick)]
    return options


def main() -> None:
    """Run what was asked for; each table is printed as soon as it is measured."""
    options = parse_options()
    report: dict[str, Any] = {"rounds": options.rounds, "quick": options.quick} | describe_machine()
    print(", ".join(f"{name} {number}" for name, number in report["versions"].items()))
    for name in options.only:
        report[name] = BENCHMARKS[name](options)
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    path = folder / time.strftime("%Y%m%d-%H%M%S.json")
    path.write_text(json.dumps(report, indent=1), encoding="utf-8")
    print(f"\nEvery single measurement: {path}")


if __name__ == "__main__":
    main()
