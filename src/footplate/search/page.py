"""The page of a whole search: one self-contained file, with every trial in pictures and in a table."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from footplate.report.files import save_text
from footplate.report.page import REPORT_NAME, assemble_page
from footplate.report.plain import as_mapping, as_number, plain, quote_path, shorten
from footplate.search.outcomes import COMPLETE, FAILED, PRUNED, Outcome
from footplate.search.record import FILE_NAME, FOLDER_NAME, read_about
from footplate.search.summary import SearchSummary

SCRIPTS = ("tools.js", "axes.js", "search_charts.js", "search_table.js", "search.js", "shell.js")
STYLES = ("page.css", "search.css")
MAX_TRIALS = 3000  # in the pictures and the table: beyond, a browser becomes slow
MAX_NAMES = 60
MAX_VALUE, MAX_ERROR = 80, 200  # characters
MAX_WHOLE = 2**53  # larger whole numbers are not exact in a browser


def save_search_page(summary: SearchSummary, num_trials: int | None, is_over: bool) -> None:
    """Write `report.html` into the folder of a search, in one step; a disk that refuses it is an `OSError`.

    Args:
        summary: The trials that have ended.
        num_trials: How many there will be; None if nobody knows.
        is_over: Whether no further trial follows.
    """
    described = describe_search(summary, num_trials, is_over)
    save_text(build_search_page(described), os.path.join(summary.output_dir, REPORT_NAME))


def build_search_page(described: Mapping[str, Any]) -> str:
    """The page as text, from the result of `describe_search`."""
    return assemble_page(described, described["search"]["name"], SCRIPTS, STYLES)


def describe_search(
    summary: SearchSummary,
    num_trials: int | None,
    is_over: bool,
    page_folder: str | os.PathLike[str] | None = None,
    live: bool = False,
) -> dict[str, Any]:
    """The data for the page's scripts.

    Args:
        summary: The trials that have ended.
        num_trials: How many there will be; None if nobody knows.
        is_over: Whether no further trial follows.
        page_folder: Where the page will be, for its links; default: the folder of the search.
        live: Whether the page is served and asks for new data.
    """
    home = summary.output_dir
    about = as_mapping(read_about(os.path.join(home, FOLDER_NAME, FILE_NAME)))
    checked = [check_outcome(outcome, len(summary.directions)) for outcome in summary.trials]
    whole = SearchSummary(home, summary.objective, summary.directions, checked)
    best = whole.best
    kept = _choose_trials(checked, best)
    names = list(dict.fromkeys(name for outcome in kept for name in outcome.params))
    shown = names[:MAX_NAMES]
    start = os.path.relpath(home, page_folder) if page_folder is not None else "."
    search = {
        "name": os.path.basename(os.path.abspath(home)),
        "folder": home,
        "objective": summary.objective,
        "directions": list(summary.directions),
        "backend": plain(about.get("backend")),
        "num_trials": num_trials,
        "is_over": is_over,
        "counts": Counter(outcome.state for outcome in checked),
        "seconds": sum(outcome.seconds for outcome in checked),
        "names": shown,
        "num_names_left_out": len(names) - len(shown),
        "kinds": _find_kinds(about.get("space")),
        "best": [outcome.number for outcome in best],
        "trials": [_describe_trial(outcome, whole, shown, start) for outcome in kept],
    }
    return {"search": search, "live": live, "written": time.time()}


def check_outcome(outcome: Outcome, num_objectives: int) -> Outcome:
    """An outcome whose fields are what they should be: anybody may have written the file that it is from."""
    error, step = outcome.error, outcome.step
    return Outcome(
        number=outcome.number,
        state=outcome.state if outcome.state in (COMPLETE, PRUNED) else FAILED,
        params={str(name): value for name, value in as_mapping(outcome.params).items()},
        values=_check_values(outcome.values, num_objectives),
        step=step if isinstance(step, int) else None,
        folder=outcome.folder if isinstance(outcome.folder, str) else None,
        checkpoint=outcome.checkpoint if isinstance(outcome.checkpoint, str) else None,
        seconds=as_number(outcome.seconds) or 0.0,
        error=None if error is None else str(error),
    )


def _check_values(values: Any, num_objectives: int) -> list[float] | None:
    """The objectives as numbers, infinite and NaN included; None if they are anything else."""
    if not isinstance(values, (list, tuple)) or len(values) != num_objectives:
        return None
    try:
        return [float(value) for value in values]
    except (TypeError, ValueError, OverflowError):
        return None


def _choose_trials(outcomes: Sequence[Outcome], best: Sequence[Outcome]) -> list[Outcome]:
    """All trials; of very many the best ones and the latest."""
    if len(outcomes) <= MAX_TRIALS:
        return list(outcomes)
    chosen = {outcome.number for outcome in [*best[:MAX_TRIALS], *outcomes[-MAX_TRIALS:]]}
    return [outcome for outcome in outcomes if outcome.number in chosen]


def _describe_trial(
    outcome: Outcome, summary: SearchSummary, names: Sequence[str], start: str
) -> dict[str, Any]:
    checkpoint = summary.checkpoint_of(outcome)
    values = outcome.values
    return {
        "number": outcome.number,
        "state": outcome.state,
        "values": None if values is None else [_shown(value) for value in values],
        "params": {name: _shown(outcome.params[name]) for name in names if name in outcome.params},
        "step": outcome.step,
        "seconds": outcome.seconds,
        "error": shorten((outcome.error or "").strip().rpartition("\n")[2], MAX_ERROR) or None,
        "checkpoint": checkpoint,
        "link": _find_link(summary.output_dir, outcome.folder, start),
    }


def _find_link(home: str, folder: str | None, start: str) -> str | None:
    """The address of a trial's own page beside that of the search; None if it has none."""
    if not folder or folder in (".", "..") or Path(folder).name != folder:
        return None
    if not os.path.isfile(os.path.join(home, folder, REPORT_NAME)):
        return None
    return quote_path([*Path(start).parts, folder, REPORT_NAME])


def _find_kinds(space: Any) -> dict[str, str]:
    """What a space that was written as a dictionary says of its names: `log` for a range, or `list`."""
    kinds = {}
    for name, entry in as_mapping(space).items():
        if isinstance(entry, list):
            kinds[name] = "list"
        elif as_mapping(entry).get("log") is True:
            kinds[name] = "log"
    return kinds


def _shown(value: Any) -> Any:
    """A value as the page has it: a number, a truth value, None or a short text."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float)):
        is_exact = as_number(value) is not None and (isinstance(value, float) or abs(value) <= MAX_WHOLE)
        return value if is_exact else shorten(str(value), MAX_VALUE)
    return shorten(value if isinstance(value, str) else str(plain(value)), MAX_VALUE)
