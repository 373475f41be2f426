"""Sends a tracker what it lacks of a finished run, read from the run's journal; nothing is sent twice."""

from __future__ import annotations

import logging
import os
import platform
import re
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

logger = logging.getLogger(__name__)


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
    if run.service_id is not None and _leaves(run.service_id):  # of TensorBoard, it is a folder
        run.service_id = None
    run.num_logs = num_noted  # for the tracker, the run resumes here
    start, run.first_step = _find_start(events, numbers, num_noted)
    tracker._open_run(run)
    for index, event in enumerate(events):
        if index in numbers:  # all logs are offered: the tracker skips those it has
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
    events = last_run(
        event for event in read_events(path) if event.keys() >= _NEEDED.get(event["kind"], set())
    )
    if not any(event["kind"] == "begin" for event in events):
        raise ValueError(f"{path} does not say how a run began, so there is nothing to send.")
    return events


def _describe(folder: str | os.PathLike[str], events: list[Event]) -> Run:
    """The run as it was last begun or resumed; its folder may have been moved since."""
    event = [event for event in events if event["kind"] == "begin"][-1]
    absent = [name for name in ("run_id", "name") if name not in event]
    wrong = [name for name, kind in _FIELDS.items() if name in event and not isinstance(event[name], kind)]
    if absent or wrong:
        names = ", ".join([*absent, *wrong])
        raise ValueError(f"{Path(folder, JOURNAL_NAME)} does not describe a run: look at {names}.")
    run = Run.from_event({**event, "output_dir": os.path.abspath(folder)})
    if run.trial is not None:
        run.trial = re.sub(r"[^\w.-]|\.\.", "_", run.trial)  # trackers make it the name of a folder
    run.logging_dir = _keep_inside(run)
    return run


_FIELDS: dict[str, Any] = {
    **dict.fromkeys(("run_id", "name", "project"), str),
    **dict.fromkeys(("logging_dir", "trial"), (str, type(None))),
    **dict.fromkeys(("max_steps", "first_step", "num_logs"), int),
    **dict.fromkeys(("settings", "trial_params", "model", "versions", "machine"), dict),
}
_NEEDED = {
    "log": {"step", "logs", "prefixes"},
    "predict": {"logs", "prefixes"},
    "samples": {"rows", "source"},
    "save": {"folder"},
    "end": {"metrics"},
}


def _keep_inside(run: Run) -> str | None:
    """The run's `logging_dir` if it is inside its folder: a journal of somebody else names any folder."""
    if run.logging_dir is None:
        return None
    folder = Path(run.output_dir).resolve()
    given = Path(os.path.expanduser(run.logging_dir)).resolve()
    if given.is_relative_to(folder):
        return str(given)
    logger.warning(
        "The journal names the logging_dir %s, which is not inside %s, so it is not written to. Set "
        "TENSORBOARD_LOGGING_DIR to choose another folder than the run's own.",
        run.logging_dir,
        run.output_dir,
    )
    return None


def _leaves(name: str) -> bool:
    return os.path.isabs(name) or ".." in Path(name).parts or "~" in name


def _find_checkpoint(event: Event, output_dir: str) -> str | None:
    """The checkpoint of a save, if it is still there and nothing in it leads out of the run's folder."""
    name = str(event.get("folder") or "")
    folder, inside = Path(output_dir, name), Path(output_dir).resolve()
    if not folder.is_dir():
        return None  # rotation has removed it
    is_named = re.fullmatch(r"checkpoint-[0-9]+", folder.name) is not None and not _leaves(name)
    reached = [folder, *folder.rglob("*")] if is_named else []
    if not reached or not all(path.resolve().is_relative_to(inside) for path in reached):
        logger.warning("%s is not sent: it is not a checkpoint inside %s.", folder, output_dir)
        return None
    return str(folder)


def _number_logs(events: list[Event]) -> dict[int, int]:
    """The number of each log among the run's logs, by its index among the events."""
    numbers: dict[int, int] = {}
    last = 0
    for index, event in enumerate(events):
        if event["kind"] == "log":
            numbers[index] = last = event.get("number") or last + 1
    return numbers


def _find_start(events: list[Event], numbers: Mapping[int, int], num_sent: int) -> tuple[int, int]:
    """The index of the first event after the last log that was sent, and the step of that log."""
    sent = [index for index, number in numbers.items() if number <= num_sent]
    return (sent[-1] + 1, int(events[sent[-1]]["step"])) if sent else (0, 0)


def _check_is_free(run: Run, tracker: str, events: list[Event]) -> None:
    """Raise if the run is still going on and reports to the tracker itself: both would send the same logs."""
    is_told = Ledger(run.output_dir, tracker).find(run.run_id) is not None
    has_given_up = any(event.get("tracker") == tracker and event.get("is_off") for event in events)
    if is_told and not has_given_up and not _has_end(events) and _is_alive(run.machine):
        raise ValueError(
            f"The run in {run.output_dir} is going on (process {run.machine['process']}) and reports to "
            f"{tracker} itself. Sync it after it has ended."
        )


def _has_end(events: list[Event]) -> bool:
    return any(event["kind"] == "end" for event in events)


def _is_alive(machine: Mapping[str, Any]) -> bool:
    """Whether the process of a run is alive; False if it ran on another machine."""
    process = machine.get("process")
    if machine.get("host") != platform.node() or type(process) is not int:
        return False
    if process == os.getpid() or not 0 < process < 1 << 31:
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _send(tracker: TrackerCallback, event: Event, output_dir: str) -> None:
    """Send an event that is not a log, as the run itself would have done."""
    kind, step = event["kind"], event.get("step", 0)
    if kind == "predict":
        tracker.write(add_headings(event["logs"], event["prefixes"]), step)
    elif kind == "samples":
        tracker.write_samples(event["rows"], event["source"], step)
    elif kind == "save":
        folder = _find_checkpoint(event, output_dir)
        if folder is not None:
            tracker.write_checkpoint(folder, step)
    elif kind == "end":
        tracker._end_run(event["metrics"], step)
