"""Footplate beside its rivals: `python benchmarks/run.py` measures, prints tables and writes JSON."""

from __future__ import annotations

import argparse
import statistics
from functools import partial
from pathlib import Path
from typing import Any

from measure import (
    Result,
    interleave,
    run_contender,
    run_import,
    run_kills,
    run_ranks,
    run_script,
    show_progress,
    summarize,
)
from reports import describe_machine, print_machine, write_report
from save_cost import measure_save_cost
from tables import (
    format_kills,
    format_padding,
    format_saves,
    print_evaluations,
    print_limits,
    print_linearity,
    print_loading,
    print_logging,
    print_packing,
    print_questions,
    print_table,
    print_times,
)

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
RANKED: dict[str, tuple[str, dict[str, Any]]] = {  # the first is the yardstick
    "hand-written DDP": ("ddp_loop", {}),
    "hand-written DDP, unused": ("ddp_loop", {"finds_unused": True}),
    "transformers": ("transformers_trainer", {}),
    "Lightning": ("lightning_trainer", {}),
    "Accelerate": ("accelerate_loop", {}),
    "footplate": ("footplate_trainer", {}),
    "footplate, no unused": ("footplate_trainer", {"finds_unused": False}),
}
RANKED_VARIANTS = {
    "MLP 16-32-32-4, batch 8": {"workload": "classes", "steps": 1201, "skip_steps": 200},
    "4.5 million weights, batch 8": {"workload": "small_tower", "steps": 170, "skip_steps": 19},
}
TURNS = {
    "MLP 16-32-32-4, batch 8": {"workload": "classes", "steps": 3001},
    "4.5 million weights, batch 8": {"workload": "small_tower", "steps": 361},
}
SAVERS = ("transformers", "Lightning", "Accelerate", "footplate")  # the first is the yardstick
SAVES = {"workload": "tower", "batch_size": 1, "learning_rate": 1e-5, "steps": 120, "save_steps": 30}
QUICK_SAVES = SAVES | {"steps": 8, "save_steps": 4}
KILLS = {"transformers": 12, "footplate": 100}
QUICK = {"steps": 60, "skip_steps": 10}
EVALUATORS = {
    "hand-written": "hand_written",
    "transformers": "with_transformers",
    "Lightning": "with_lightning",
    "footplate": "with_footplate",
}
EVALUATED_ROWS = {"fixed": (5_000, 20_000, 80_000), "ragged": (5_000, 20_000, 80_000)}
QUICK_EVALUATED_ROWS = {"fixed": (500, 1_000), "ragged": (500,)}
# transformers joins all earlier rows with each batch: four times the rows take sixteen times as long
MOST_ROWS = {"transformers": 20_000}
MEMORY_LIMIT, LIMITED_ROWS = "32MB", (20_000, 80_000, 320_000)
LOGGERS: dict[str, dict[str, Any]] = {  # the first is the yardstick
    "a log every update, no report": {"logging_steps": 1, "report": False},
    "a log every update": {"logging_steps": 1, "report": True},
    "a log every 500 updates, no report": {"logging_steps": 500, "report": False},
    "a log every 500 updates": {"logging_steps": 500, "report": True},
}
PACKERS = {  # the first is the yardstick
    "8 conversations, padded": "padded",
    "8 of like length, padded": "grouped",
    "2 rows of 512, packed": "packed",
}
COMPILED: dict[str, dict[str, Any]] = {
    "not compiled, padded freely": {"compiled": False, "multiple": None},
    "not compiled, multiples of 64": {"compiled": False, "multiple": 64},
    "compiled, padded freely": {"compiled": True, "multiple": None},
    "compiled, multiples of 64": {"compiled": True, "multiple": 64},
}
LOADED_ROWS = {8: 6_000, 32: 12_000}  # by rows of a batch
QUESTIONS = {"steps": 80, "eval_steps": 20}
QUICK_QUESTIONS = {"steps": 2, "eval_steps": 1}


def measure_steps(options: argparse.Namespace) -> dict[str, Any]:
    """CPU and wall time of one update, start-up left out."""
    raw = {}
    for title, variant in VARIANTS.items():
        settings = variant | (QUICK if options.quick else LENGTHS[variant["workload"]])
        jobs = {label: partial(run_contender, CONTENDERS[label], settings) for label in options.contenders}
        raw[title] = interleave(jobs, options.rounds)
        print_times(f"One update: {title}", raw[title], "step", "µs", 1e6)
    return raw


def measure_ranks(options: argparse.Namespace) -> dict[str, Any]:
    """CPU and wall time of one update in each of two processes that train together."""
    raw = {}
    for title, variant in RANKED_VARIANTS.items():
        settings = variant | {"ranks": 2} | (QUICK if options.quick else {})
        jobs = {
            label: partial(run_ranks, name, settings | extra)
            for label, (name, extra) in RANKED.items()
            if label.split(",")[0] in options.contenders or name == "ddp_loop"
        }
        raw[title] = interleave(jobs, options.rounds)
        print_times(f"One update of each of 2 processes: {title}", raw[title], "step", "µs", 1e6)
    return raw


def measure_turns(options: argparse.Namespace) -> dict[str, Any]:
    """Footplate and the DDP loop by hand in the same two processes, in turn."""
    raw: dict[str, Any] = {}
    lines = []
    for title, variant in TURNS.items():
        settings = {"ranks": 2} | variant | ({"steps": 121} if options.quick else {})
        for way, finds_unused in {"neither finds unused parameters": False, "both do": None}.items():
            settings["finds_unused"] = finds_unused
            results = [run_ranks("in_turn", settings) for _ in range(options.rounds)]
            raw[f"{title}, {way}"] = results
            lines += [[title, way, *describe_turns(result)] for result in results]
    header = ["", "", "hand-written, µs", "footplate", "ratio", "quartiles"]
    print_table("Footplate and hand-written DDP in turn: CPU time of one update, medians", header, lines)
    return raw


def describe_turns(result: Result) -> list[str]:
    """The medians of one run, and where half of the ratios of its blocks lie."""
    if "error" in result:
        return [result["error"], "", "", ""]
    low, middle, high = statistics.quantiles(result["ratio"], n=4)
    times = [f"{1e6 * statistics.median(result[key]):.0f}" for key in ("hand_cpu", "step_cpu")]
    return [*times, f"{middle:.2f}", f"{low:.2f} to {high:.2f}"]


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


def measure_evaluations(options: argparse.Namespace) -> dict[str, Any]:
    """Rows per second of one evaluation, and the memory it takes beside its result."""
    raw: dict[str, Any] = {}
    for kind, sizes in (QUICK_EVALUATED_ROWS if options.quick else EVALUATED_ROWS).items():
        by_size = raw[kind] = {}
        for num_rows in sizes:
            labels = [
                label
                for label in EVALUATORS
                if label in options.contenders and num_rows <= MOST_ROWS.get(label, num_rows)
            ]
            settings = {"kind": kind, "rows": num_rows}
            jobs = {
                label: partial(run_contender, EVALUATORS[label], settings, "evaluation") for label in labels
            }
            # what takes minutes gets one round, after the others
            slow = {label: jobs.pop(label) for label in labels if num_rows == MOST_ROWS.get(label)}
            by_size[num_rows] = interleave(jobs, options.rounds) | interleave(slow, min(1, len(slow)))
            print_evaluations(kind, num_rows, by_size[num_rows])
        print_linearity(kind, by_size)
    if "footplate" in options.contenders:
        raw["limited"] = measure_limits(options)
    return raw


def measure_limits(options: argparse.Namespace) -> dict[str, list[Result]]:
    """What an evaluation holds in memory when its result may not."""
    settings = {"kind": "fixed", "memory_limit": MEMORY_LIMIT}
    jobs = {
        f"{num_rows:,}": partial(
            run_contender, EVALUATORS["footplate"], settings | {"rows": num_rows}, "evaluation"
        )
        for num_rows in (LIMITED_ROWS[:1] if options.quick else LIMITED_ROWS)
    }
    raw = interleave(jobs, options.rounds)
    print_limits(MEMORY_LIMIT, raw)
    return raw


def measure_answers(options: argparse.Namespace) -> dict[str, Any]:
    """From the scores of 10,000 features to answers."""
    num_features = 1_000 if options.quick else 10_000
    jobs = {
        f"SQuAD {version}": partial(run_script, "answers", {"features": num_features, "version": version})
        for version in ("v1", "v2")
    }
    raw = interleave(jobs, options.rounds)
    rows = []
    for label, results in raw.items():
        summary = summarize(results)
        if "error" in summary:
            rows.append([label, f"failed: {summary['error']}"])
            continue
        seconds = [f"{summary[f'answer_{clock}']['median']:.2f}" for clock in ("cpu", "wall")]
        agrees = "yes" if summary["agrees"]["best"] else "NO"
        rows.append([label, *seconds, f"{summary['plain_cpu']['median']:.1f}", agrees])
    header = ["", "CPU median, s", "wall median, s", "a plain loop, CPU s", "same answers"]
    print_table(f"Answers of {num_features:,} features of 384 tokens", header, rows)
    return raw


def measure_questions(options: argparse.Namespace) -> dict[str, Any]:
    """A real encoder learns to answer real questions, and both libraries reach the same."""
    folder = options.data / "question_answering" if options.data else None
    if folder is None or not folder.is_dir():
        print("\nqa: left out, because --data names no folder with question_answering/ in it.")
        return {}
    raw: dict[str, Any] = {}
    for edition in ("v1", "v2"):
        raw[edition] = {}
        for library in ("footplate", "transformers"):
            show_progress(f"SQuAD {edition}: {library}")
            settings = {"library": library, "version": edition, "data": str(folder)}
            settings |= QUICK_QUESTIONS if options.quick else QUESTIONS
            raw[edition][library] = run_script("question_answering", settings, timeout_seconds=3600)
        show_progress("")
        print_questions(edition, raw[edition])
    return raw


def measure_logging(options: argparse.Namespace) -> dict[str, list[Result]]:
    """What a line in events.jsonl and a point in report.html per update add to an update of 5 ms."""
    steps = 100 if options.quick else 1_500
    jobs = {
        label: partial(run_script, "logging_cost", settings | {"steps": steps})
        for label, settings in LOGGERS.items()
    }
    raw = interleave(jobs, options.rounds)
    print_logging(raw)
    return raw


def measure_packing(options: argparse.Namespace) -> dict[str, list[Result]]:
    """Tokens per second of training on conversations: padded, grouped by length, packed."""
    settings = {"conversations": 100 if options.quick else 300}
    jobs = {label: partial(run_script, "packing", settings | {"way": way}) for label, way in PACKERS.items()}
    raw = interleave(jobs, options.rounds)
    print_packing(raw)
    return raw


def measure_compiling(options: argparse.Namespace) -> dict[str, list[Result]]:
    """Time to the first update, time per update and compiles of a small BERT."""
    steps = 6 if options.quick else 60
    jobs = {
        f"{library}, {label}": partial(
            run_script, "compiling", settings | {"library": library, "steps": steps}
        )
        for label, settings in COMPILED.items()
        for library in ("transformers", "footplate")
    }
    raw = interleave(jobs, options.rounds)
    header = ["", "first update, s", "one update, ms", "all updates, s", "compiles"]
    rows = []
    for label, results in raw.items():
        good = [result for result in results if "error" not in result]
        cells = [results[0].get("error", "")]
        if good:
            middle = {key: statistics.median(result[key] for result in good) for key in good[0]}
            cells = [f"{middle['first_update']:.1f}", f"{1e3 * middle['update']:.1f}"]
            cells += [f"{middle['total']:.1f}", f"{middle['compiles']:.0f}"]
        rows.append([label, *cells])
    print_table("A small BERT, compiled and not", header, rows)
    return raw


def measure_loading(options: argparse.Namespace) -> dict[str, Any]:
    """Rows per second of a tokenized table of texts, read by 0, 1 and 2 workers."""
    raw: dict[str, Any] = {}
    data = str(options.data.resolve()) if options.data else None
    for batch_size, num_rows in LOADED_ROWS.items():
        rows = 40 * batch_size if options.quick else num_rows
        settings = {"batch_size": batch_size, "rows": rows, "data": data}
        jobs = {
            f"{library}, {workers} workers": partial(
                run_script, "loading", settings | {"library": library, "workers": workers}
            )
            for workers in (0, 1, 2)
            for library in ("transformers", "footplate")
        }
        raw[str(batch_size)] = interleave(jobs, options.rounds)
        print_loading(batch_size, raw[str(batch_size)])
    return raw


BENCHMARKS = {
    "step": measure_steps,
    "ranks": measure_ranks,
    "turns": measure_turns,
    "start": measure_start,
    "padding": measure_padding,
    "save": measure_saves,
    "save-cost": measure_save_cost,
    "kill": measure_kills,
    "evaluate": measure_evaluations,
    "answers": measure_answers,
    "qa": measure_questions,
    "log": measure_logging,
    "packing": measure_packing,
    "compile": measure_compiling,
    "loading": measure_loading,
}


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
    parser.add_argument(
        "--data",
        type=Path,
        help="folder of */train.csv files for padding and loading, and of question_answering/ for qa",
    )
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
    print_machine(report)
    for name in options.only:
        report[name] = BENCHMARKS[name](options)
    print(f"\nEvery single measurement: {write_report(report)}")


if __name__ == "__main__":
    main()
