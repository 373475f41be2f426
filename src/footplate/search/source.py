"""Reads a search from its folder, for its page: once, or again and again while it is served."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from footplate.disk import parse_json, read_bytes
from footplate.report.page import REPORT_NAME, build_page, describe_runs
from footplate.report.plain import as_mapping
from footplate.report.serve import ReportServer
from footplate.report.source import RunSource, holds_run
from footplate.search.outcomes import MAXIMIZE, MINIMIZE
from footplate.search.page import build_search_page, describe_search
from footplate.search.record import FILE_NAME, FOLDER_NAME, read_record
from footplate.search.summary import SearchSummary

MAX_PAGE_BYTES = 1 << 26


def holds_search(folder: str | Path) -> bool:
    """Whether a folder holds a search, and no later run of its own: the page of such a run tells.

    The journal does not: an evaluation after the search, without training, is written there too.
    """
    try:
        trials = Path(folder, FOLDER_NAME, FILE_NAME).stat()
    except OSError:
        return False
    page = Path(folder, REPORT_NAME)
    with contextlib.suppress(OSError, ValueError):
        if page.stat().st_mtime_ns > trials.st_mtime_ns:
            return b'id="data">{"runs":' not in read_bytes(page, MAX_PAGE_BYTES)
    return True


class SearchSource:
    """A search as its folder has it.

    Args:
        folder: The `output_dir` of the search.
        is_going: Tells whether a process still writes there.
    """

    def __init__(self, folder: str | Path, is_going: Callable[[], bool]) -> None:
        self.folder = Path(folder)
        self._is_going = is_going
        self._seen: Any = None
        self.is_over = True
        self.num_trials: int | None = None
        self.summary = SearchSummary(str(folder), "", [MINIMIZE], [])

    def update(self) -> bool:
        """Read what is new; False if nothing is. A file that does not say what it holds is a ValueError."""
        path, page = self.folder / FOLDER_NAME / FILE_NAME, self.folder / REPORT_NAME
        self.is_over = not self._is_going()
        seen = (_identify(path), _identify(page), self.is_over)
        if seen == self._seen:
            return False
        about, outcomes = read_record(path) or ({}, [])
        directions = _check_directions(about.get("directions"))
        if not directions:
            raise ValueError(
                f"{path} does not begin with what its search is. Give the output_dir of a search."
            )
        self.summary = SearchSummary(str(self.folder), str(about.get("objective")), directions, outcomes)
        self.num_trials = _find_num_trials(page)
        self._seen = seen
        return True

    def describe(self, page_folder: str | Path | None = None, live: bool = False) -> dict[str, Any]:
        """The data for the page, as `describe_search` gives it."""
        return describe_search(self.summary, self.num_trials, self.is_over, page_folder, live)


class SearchServer(ReportServer):
    """A server of the page of a search and of the pages of its trials.

    Args:
        source: Where the search is read from.
        port: The port to listen on; 0 for any free port.
    """

    def __init__(self, source: SearchSource, port: int) -> None:
        super().__init__([], None, port)
        self._source = source

    def describe(self) -> tuple[str, dict[str, Any]]:
        """The current data of the search, and a tag that changes with the data."""
        with self._lock:
            # another search may be taking its place just now; what was read last is shown until then
            with contextlib.suppress(OSError, ValueError):
                self._version += self._source.update()
            return f'"{self._version}"', self._source.describe(live=True)

    def build(self, described: dict[str, Any]) -> str:
        """The page of the search."""
        return build_search_page(described)

    def find_page(self, path: str) -> str | None:
        """The page of the trial that the page of the search links to by this path, made anew; else None."""
        _, described = self.describe()
        links = {trial["link"]: trial["number"] for trial in described["search"]["trials"]}
        number = links.get(f".{path}")
        trials = self._source.summary.trials
        folder = next((outcome.folder for outcome in trials if outcome.number == number), None)
        if number is None or folder is None or not holds_run(self._source.folder / folder):
            return None
        run = RunSource(self._source.folder / folder)
        run.update()
        return build_page(describe_runs([run.data]))


def _check_directions(found: Any) -> list[str]:
    """The directions of the objectives; empty if they are anything else."""
    directions = [str(direction) for direction in found] if isinstance(found, list) else []
    return directions if set(directions) <= {MINIMIZE, MAXIMIZE} else []


def _identify(path: Path) -> tuple[int, ...] | None:
    """What changes when a file does; None without it."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _find_num_trials(page: Path) -> int | None:
    """How many trials there will be, which only the process that searches knows: its page says so."""
    with contextlib.suppress(OSError, ValueError):
        content = read_bytes(page, MAX_PAGE_BYTES)
        data = re.search(rb'id="data">([^<]*)</script>', content)
        described = as_mapping(parse_json(data.group(1))) if data else {}
        found = as_mapping(described.get("search")).get("num_trials")
        return found if isinstance(found, int) else None
    return None
