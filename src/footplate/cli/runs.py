"""`footplate runs DIR`: a table of all runs below a folder, or a page that compares them, live if wanted."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from footplate.checkpoint.life import find_life
from footplate.cli.columns import align, make_printable
from footplate.cli.report import check_options, serve, show_page
from footplate.report.overview import SORT_KEYS, Row, RunList, sort_rows
from footplate.report.overview_page import NUM_POINTS, OverviewServer, build_overview, describe_overview
from footplate.words import format_bytes

SORTS = (*SORT_KEYS, "best")
MAX_WIDTH = 48  # of a column, in letters
UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    text = "List all runs below a folder: status, step, best metric, age, size; or compare them in a page."
    parser = commands.add_parser("runs", help=text, description=text)
    parser.add_argument("folder", metavar="DIR", help="Where to look for runs, at any depth.")
    parser.add_argument(
        "--sort", choices=SORTS, default="age", help="What to sort by; default: age, the newest first."
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="Print a list of JSON objects, one for each run.")
    form.add_argument("--html", dest="output", metavar="FILE", help="Write a page that compares the runs.")
    form.add_argument("--serve", action="store_true", help="Serve this page live here, until Ctrl-C.")
    parser.add_argument("--open", action="store_true", help="With --html or --serve: open it in the browser.")
    parser.add_argument("--port", type=int, metavar="N", help="With --serve; default: that of `report`.")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the runs or show their page; the exit code is 1 if there are none."""
    check_options(options)
    if not Path(options.folder).is_dir():
        raise ValueError(f"{options.folder!r} is not a folder. Give a folder that holds runs.")
    if options.open and not (options.output or options.serve):
        raise ValueError("--open is for a page. Add --html FILE or --serve, or leave --open out.")
    has_page = bool(options.output or options.serve)
    runs = RunList(options.folder, find_life, NUM_POINTS if has_page else 0)
    if options.serve:
        return serve(lambda port: OverviewServer(runs, options.sort, port), options.port, options.open)
    runs.update()
    rows = sort_rows(runs.rows, options.sort)
    if options.output:
        path = Path(options.output)
        described = describe_overview(runs, options.sort, page_folder=path.resolve().parent)
        return show_page(build_overview(described), path, options)
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2, allow_nan=False))
    else:
        print(format_runs(rows, time.time()) if rows else f"There are no runs in {options.folder}.")
        if not runs.is_whole:
            print(f"\nThere are more files in {options.folder} than are looked at. Give a folder inside it.")
    return 0 if rows else 1


def format_runs(rows: list[Row], now: float) -> str:
    """The runs as a table, with what could not be read below it."""
    heads = ("run", "status", "step", "loss", "best", "age", "size")
    is_number = (False, False, True, True, False, True, True)
    table = align([heads, *(describe_row(row, now) for row in rows)], is_number)
    notes = [make_printable(f"{row.path}: {note}") for row in rows for note in row.notes]
    return "\n".join([table, *([""] if notes else []), *notes])


def describe_row(row: Row, now: float) -> tuple[str, ...]:
    """The cells of a row."""
    of = f" of {row.max_steps}" if row.max_steps else ""
    best = "" if row.best is None else f"{row.best_name} {row.best:.5g} at {row.best_step}"
    status = f"{row.status}, {row.detail}" if row.detail else row.status
    return (
        clip(row.path if row.path != "." else row.name),
        clip(status),
        f"{row.step}{of}",
        "" if row.loss is None else f"{row.loss:.5g}",
        clip(best),
        "" if row.last_time is None else say_age(now - row.last_time),
        f"{'' if row.size_is_whole else 'over '}{format_bytes(row.size_bytes)}",
    )


def clip(text: str) -> str:
    """The text in one line, its middle left out if it is long: both ends tell runs apart."""
    text, half = " ".join(text.split()), MAX_WIDTH // 2
    return text if len(text) <= MAX_WIDTH else f"{text[: half - 1]}…{text[-half:]}"


def say_age(seconds: float) -> str:
    """A time in its largest unit; a clock of another machine may be ahead of ours."""
    return next((f"{int(seconds // size)} {unit}" for size, unit in UNITS if seconds >= size), "0 s")
