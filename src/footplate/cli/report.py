"""`footplate report DIR [DIR ...]`: show a run or a search, live if wanted, or compare runs."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from footplate.checkpoint.lock import seems_in_use
from footplate.report.files import save_text
from footplate.report.page import REPORT_NAME, build_page, describe_runs
from footplate.report.serve import ReportServer
from footplate.report.source import RunSource
from footplate.search.page import build_search_page
from footplate.search.source import SearchServer, SearchSource, holds_search

DEFAULT_PORT = 8642
COMPARISON_NAME = "comparison.html"


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    text = "Build the report of a run or a search, or one that compares runs; open it, or serve it live."
    parser = commands.add_parser("report", help=text, description=text)
    parser.add_argument(
        "folders",
        metavar="DIR",
        nargs="+",
        help="The output_dir of a run, of footplate or of transformers, or of a search.",
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
    if len(options.folders) == 1 and holds_search(options.folders[0]):
        return show_search(options.folders[0], options)
    sources = [RunSource(folder) for folder in options.folders]
    for source in sources:
        source.check()
        source.update()
    defaults = find_missing_defaults(sources)
    if options.serve:
        return serve(lambda port: ReportServer(sources, defaults, port), options.port, options.open)
    path = choose_path(options.folders, options.output)
    return show_page(build_page(describe_runs([source.data for source in sources], defaults)), path, options)


def show_search(folder: str, options: argparse.Namespace) -> int:
    """Build or serve the page of a search, from the trials that have ended."""
    source = SearchSource(folder, lambda: seems_in_use(folder))
    source.update()
    if options.serve:
        return serve(lambda port: SearchServer(source, port), options.port, options.open)
    path = choose_path([folder], options.output)
    return show_page(build_search_page(source.describe(path.resolve().parent)), path, options)


def show_page(text: str, path: Path, options: argparse.Namespace) -> int:
    """Write a page, say where it is, and open it if that is asked for."""
    if path.is_dir() or not path.parent.is_dir():
        raise ValueError(f"{str(path)!r} cannot be written: give a file in a folder that is there.")
    save_text(text, path)
    print(path)
    if options.open:
        webbrowser.open(path.resolve().as_uri())
    return 0


def find_missing_defaults(sources: list[RunSource]) -> dict[str, Any]:
    """The defaults of today's arguments, if the journal of a run is from before it held its own."""
    if not any(source.data.settings and not source.data.defaults for source in sources):
        return {}
    from footplate.arguments import TrainingArguments  # imports torch
    from footplate.integrations.run import find_defaults

    return find_defaults(TrainingArguments)


def check_options(options: argparse.Namespace) -> None:
    """Raise if the options do not fit together."""
    if options.serve and options.output is not None:
        raise ValueError("--output and --serve exclude each other: a served report is not written to a file.")
    if options.port is not None and not options.serve:
        raise ValueError("--port is for --serve. Add --serve, or leave --port out.")
    if options.port is not None and not 0 <= options.port < 65536:
        raise ValueError(
            f"--port {options.port} is not a port. Give one from 1 to 65535, or 0 for any free one."
        )


def choose_path(folders: list[str], output: str | None) -> Path:
    """Where to write the page: what was asked for, else in the folder of the run."""
    if output is not None:
        return Path(output)
    return Path(folders[0], REPORT_NAME) if len(folders) == 1 else Path(COMPARISON_NAME)


def serve(listen: Callable[[int], ReportServer], port: int | None, should_open: bool) -> int:
    """Serve until Ctrl-C; if no port was asked for and the default is in use, take a free one.

    Args:
        listen: The server on a port.
        port: The port that was asked for.
        should_open: Whether to open the page in the browser.
    """
    try:
        server = listen(DEFAULT_PORT if port is None else port)
    except OSError as error:
        if port is not None:
            raise ValueError(f"--port {port} cannot be used: {error.strerror}. Give another.") from error
        server = listen(0)
        reason = f"Port {DEFAULT_PORT} cannot be used: {error.strerror}. Port {server.server_port} was free."
        print(f"footplate: {reason} Choose one with --port.", file=sys.stderr)
    with server:
        print(f"{server.url}  (Ctrl-C ends it)", flush=True)
        if should_open:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0
