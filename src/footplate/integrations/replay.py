"""Tells a tracker about a run afterwards, from its journal: what it missed, and nothing twice."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from footplate.integrations.base import TrackerCallback
from footplate.integrations.headings import add_headings
from footplate.integrations.journal import JOURNAL_NAME, last_run, read_events
from footplate.integrations.ledger import Ledger
from footplate.integrations.run import Run

Event = dict[str, Any]


@dataclass(frozen=True)
class Replay:
    """What a replay did: how many logs it sent, how many the run has, and the tracker's id of the run."""

    num_sent: int
    num_logs: int
    service_id: str | None


def replay_run(folder: str | os.PathLike[str], tracker: TrackerCallback) -> Replay:
    """Send a tracker what it lacks of the last run in a folder; errors of the service are raised.

    Args:
        folder: The `output_dir` of the run.
        tracker: Where to send it.
    """
    events = load_last_run(folder)
    run = _describe(folder, events)
    numbers = _number_logs(events)
    num_logs = run.num_logs = max(numbers.values(), default=0)
    _check_is_free(run, tracker.name, events)
    entry = Ledger(run.output_dir, tracker.name).find(run.run_id)
    num_noted = entry.num_sent if entry is not None else 0
    num_unsent = sum(number > num_noted for number in numbers.values())
    is_complete = entry is not None and entry.is_closed and (entry.is_ended or not _has_end(events))
    if entry is not None and is_complete and not num_unsent:
        return Replay(0, num_logs, entry.service_id)

    tracker.resume(run)
    run.num_logs = num_noted  # for the tracker, the run goes on from here
    start, run.first_step = _find_start(events, numbers, num_noted)
    tracker._open_run(run)
    for index, event in enumerate(events):
        if index in numbers:  # offered from the first one on: the tracker knows which ones it has
            tracker._write_log(add_headings(event["logs"], event["prefixes"]), event["step"], numbers[index])
        elif index >= start or event["kind"] == "end":
            _send(tracker, event, run.output_dir)
    tracker._close_service()
    return Replay(num_unsent, num_logs, tracker.service_id)


def load_last_run(folder: str | os.PathLike[str]) -> list[Event]:
    """The events of the last run in a folder, which must have one."""
    path = Path(folder, JOURNAL_NAME)
    if not path.is_file():
        raise ValueError(
            f"There is no {JOURNAL_NAME} in {os.fspath(folder)!r}. Give the output_dir of a run."
        )
    events = last_run(read_events(path))
    if not any(event["kind"] == "begin" for event in events):
        raise ValueError(f"{path} does not say how a run began, so there is nothing to send.")
    return events


def _describe(folder: str | os.PathLike[str], events: list[Event]) -> Run:
    """The run as its last leg began; it is where it is found, wherever it was before."""
    run = Run.from_event([event for event in events if event["kind"] == "begin"][-1])
    run.output_dir = os.path.abspath(folder)
    return run


def _number_logs(events: list[Event]) -> dict[int, int]:
    """Which of the run's logs an event is, by its place."""
    numbers: dict[int, int] = {}
    last = 0
    for index, event in enumerate(events):
        if event["kind"] == "log":
            numbers[index] = last = event.get("number", last + 1)
    return numbers


def _find_start(events: list[Event], numbers: Mapping[int, int], num_sent: int) -> tuple[int, int]:
    """The place after the last log that was sent, and its step."""
    sent = [index for index, number in numbers.items() if number <= num_sent]
    return (sent[-1] + 1, int(events[sent[-1]]["step"])) if sent else (0, 0)


def _check_is_free(run: Run, tracker: str, events: list[Event]) -> None:
    """Refuse where the run is going on and tells the tracker itself: both would send the same."""
    is_told = Ledger(run.output_dir, tracker).find(run.run_id) is not None
    has_given_up = any(event.get("tracker") == tracker and event.get("is_off") for event in events)
    if is_told and not has_given_up and not _has_end(events) and _is_alive(run.machine):
        raise ValueError(
            f"The run in {run.output_dir} is going on (process {run.machine['process']}) and reports to "
            f"{tracker} itself. Sync it when it is over."
        )


def _has_end(events: list[Event]) -> bool:
    return any(event["kind"] == "end" for event in events)


def _is_alive(machine: Mapping[str, Any]) -> bool:
    """Whether the process of a run is there, as far as this machine can tell."""
    process = machine.get("process")
    if machine.get("host") != platform.node() or not isinstance(process, int) or process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _send(tracker: TrackerCallback, event: Event, output_dir: str) -> None:
    """One event that is no log, as the run itself would have told it."""
    kind, step = event["kind"], event.get("step", 0)
    if kind == "predict":
        tracker.write(add_headings(event["logs"], event["prefixes"]), step)
    elif kind == "samples":
        tracker.write_samples(event["rows"], event["source"], step)
    elif kind == "save":
        folder = os.path.join(output_dir, event["folder"])
        if os.path.isdir(folder):  # it may have been rotated away
            tracker.write_checkpoint(folder, step)
    elif kind == "end":
        tracker._end_run(event["metrics"], step)
