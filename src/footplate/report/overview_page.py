"""The page of all runs below a folder: a table of them, and the curves of those that are chosen in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from footplate.report.overview import Row, RunList, sort_rows
from footplate.report.page import REPORT_NAME, SCRIPTS, STYLES, assemble_page, build_page, describe_runs
from footplate.report.plain import quote_path
from footplate.report.serve import ReportServer
from footplate.report.source import RunSource

NUM_POINTS = 500  # of each curve: some runs have a million logs, and a page shows many runs
MAX_RUNS = 200  # in the page, those that come first in its order
SERVED = "run"  # the folder of the pages of runs, where they are served


def describe_overview(
    runs: RunList, sort: str, page_folder: str | os.PathLike[str] | None = None, live: bool = False
) -> dict[str, Any]:
    """The data for the page's scripts.

    Args:
        runs: The runs, as they were read last.
        sort: What to sort by at first.
        page_folder: Where the page will be, for its links; None for a page that is served.
        live: Whether the page is served and asks for new data.
    """
    rows = sort_rows(runs.rows, sort)
    shown = rows[:MAX_RUNS]
    described = describe_runs([runs.data_of(row) for row in shown], live=live)
    links = [find_link(runs.root, row, page_folder) for row in shown]
    return {
        **described,
        "rows": [{**asdict(row), "link": link} for row, link in zip(shown, links, strict=True)],
        "root": str(runs.root),
        "sort": sort,
        "num_left_out": len(rows) - len(shown),
        "is_whole": runs.is_whole,
        "num_points": NUM_POINTS,
    }


def build_overview(described: Mapping[str, Any]) -> str:
    """The page as text, from the result of `describe_overview`."""
    scripts = (*SCRIPTS[:-1], "overview.js", SCRIPTS[-1])
    name = Path(described["root"]).resolve().name
    return assemble_page(described, name, scripts, (*STYLES, "overview.css"))


def find_link(root: Path, row: Row, page_folder: str | os.PathLike[str] | None) -> str | None:
    """The address of a run's own page; None if it has none."""
    if page_folder is None:
        return quote_path([SERVED, *Path(row.path).parts, REPORT_NAME])
    if not (root / row.path / REPORT_NAME).is_file():
        return None
    try:
        start = os.path.relpath(root / row.path, page_folder)
    except ValueError:  # another drive of Windows
        return None
    return quote_path([*Path(start).parts, REPORT_NAME])


class OverviewServer(ReportServer):
    """A server of the page of all runs below a folder, and of the page of each run.

    Args:
        runs: The runs.
        sort: What to sort by at first.
        port: The port to listen on; 0 for any free port.
    """

    def __init__(self, runs: RunList, sort: str, port: int) -> None:
        super().__init__([], None, port)
        self._runs, self._sort = runs, sort
        self._described: dict[str, Any] | None = None

    def describe(self) -> tuple[str, dict[str, Any]]:
        """The current data of the runs, and a tag that changes with the data."""
        with self._lock:
            if self._runs.update() or self._described is None:
                self._version += 1
                self._described = describe_overview(self._runs, self._sort, live=True)
            return f'"{self._version}"', self._described

    def build(self, described: dict[str, Any]) -> str:
        """The page of all runs."""
        return build_overview(described)

    def find_page(self, path: str) -> str | None:
        """The page of the run that the table links to by this path, made anew; else None."""
        with self._lock:
            rows = {find_link(self._runs.root, row, None): row for row in self._runs.rows}
        row = rows.get(f".{path}")
        if row is None:
            return None
        run = RunSource(self._runs.root / row.path)
        try:
            run.update()
        except (OSError, ValueError):  # the table says why
            return None
        return build_page(describe_runs([run.data]))
