"""`footplate report DIR [DIR ...]`: look at a run, live if it still goes on, or compare several."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path
from typing import Any

from footplate.arguments import TrainingArguments
from footplate.report.page import REPORT_NAME, build_page, describe_runs, find_defaults, save_page
from footplate.report.serve import ReportServer
from footplate.report.source import RunSource

DEFAULT_PORT = 8642
COMPARISON_NAME = "comparison.html"


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    text = "Build the report of a run, or one that compares several; open it, or serve it live."
    parser = commands.add_parser("report", help=text, description=text)
    parser.add_argument(
        "folders", metavar="DIR", nargs="+", help="The output_dir of a run, of footplate or of transformers."
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help=f"Where to write it; default: DIR/{REPORT_NAME}, or {COMPARISON_NAME} here for several runs.",
    )
    parser.add_argument("--open", action="store_true", help="Open it in the browser.")
    parser.add_argument(
        "--serve", action="store_true", help="Serve it live on this machine instead, until Ctrl-C."
    )
    parser.add_argument("--port", type=int, metavar="N", help=f"With --serve; default: {DEFAULT_PORT}.")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Build or serve the report."""
    check_options(options)
    sources = [RunSource(folder) for folder in options.folders]
    for source in sources:
        source.check()
        source.update()
    defaults = find_defaults(TrainingArguments)
    if options.serve:
        return serve(sources, defaults, options.port, options.open)
    path = choose_path(options.folders, options.output)
    save_page(build_page(describe_runs([source.data for source in sources], defaults)), path)
    print(path)
    if options.open:
        webbrowser.open(path.resolve().as_uri())
    return 0


def check_options(options: argparse.Namespace) -> None:
    """Refuse what does not go together."""
    if options.serve and options.output is not None:
        raise ValueError("--output and --serve exclude each other: what is served is not written.")
    if options.port is not None and not options.serve:
        raise ValueError("--port is for --serve. Add --serve, or leave --port out.")
    if options.port is not None and not 0 <= options.port < 65536:
        raise ValueError(
            f"--port {options.port} is no port. Give one from 1 to 65535, or 0 for any free one."
        )


def choose_path(folders: list[str], output: str | None) -> Path:
    """Where the page goes: what was asked for, else beside the run it shows."""
    if output is not None:
        return Path(output)
    return Path(folders[0], REPORT_NAME) if len(folders) == 1 else Path(COMPARISON_NAME)


def serve(sources: list[RunSource], defaults: dict[str, Any], port: int | None, should_open: bool) -> int:
    """Serve until Ctrl-C; without a port asked for, any free one will do."""
    try:
        server = ReportServer(sources, defaults, DEFAULT_PORT if port is None else port)
    except OSError as error:
        if port is not None:
            raise ValueError(f"--port {port} cannot be used: {error.strerror}. Give another.") from error
        server = ReportServer(sources, defaults, 0)
    with server:
        print(f"{server.url}  (Ctrl-C ends it)", flush=True)
        if should_open:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0
