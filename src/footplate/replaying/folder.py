"""What the folder of a run says of it: logs, checkpoints, how far it came. Nothing in it is changed."""

from __future__ import annotations

import logging
import math
import os
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from footplate.checkpoint.ranks import count_ranks
from footplate.checkpoint.resume import find_saved_arguments
from footplate.checkpoint.rotation import find_checkpoints_of
from footplate.checkpoint.runs import MAX_STATE_BYTES
from footplate.checkpoint.seal import verify_checkpoint
from footplate.disk import read_json
from footplate.integrations.journal import JOURNAL_NAME, last_run, read_events
from footplate.state import TRAINER_STATE_NAME

logger = logging.getLogger(__name__)

TASK_FILE = "run.yaml"  # a run of `footplate run` can be repeated without a script
Log = Mapping[str, Any]


@dataclass(frozen=True)
class RunRecord:
    """A run as its folder shows it."""

    folder: Path
    logs: dict[int, Log] = field(default_factory=dict)  # those of training, by step
    checkpoints: dict[int, Path] = field(default_factory=dict)  # of this run, by step
    saved_steps: tuple[int, ...] = ()  # checkpoints that the run has written, also those that are gone
    last_step: int = 0  # the last update that anything tells of
    max_steps: int | None = None  # the planned end
    has_ended: bool = False
    seconds_per_update: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_task(self) -> bool:
        """Whether `footplate run` made it."""
        return (self.folder / TASK_FILE).is_file()

    def check_step(self, step: int) -> None:
        """Refuse an update that the run never made."""
        if step < 1:
            raise ValueError(f"There is no update {step}: updates count from 1. Give another --step.")
        last = self.last_step if self.has_ended else max(self.last_step, self.max_steps or step)
        if step > last:
            done = "ended with" if self.has_ended else "was planned to end with"
            raise ValueError(
                f"The run in {self.folder} {done} update {last}, so it has no update {step}. Give a --step "
                f"from 1 to {last}."
            )

    def find_start(self, step: int, from_start: bool = False) -> tuple[int, Path | None]:
        """The update to go on from, and its checkpoint: the nearest intact one before `step`.

        Args:
            step: The update to make again.
            from_start: Begin at the start even if a checkpoint should be there.
        """
        for earlier in sorted(self.checkpoints, reverse=True):
            if earlier >= step or from_start:
                continue
            verdict = verify_checkpoint(self.checkpoints[earlier])
            if verdict.is_intact:
                return earlier, self.checkpoints[earlier]
            logger.warning("%s is damaged and passed over: %s.", self.checkpoints[earlier], verdict.reason)
        gone = [saved for saved in self.saved_steps if saved < step]
        if gone and not from_start:
            raise ValueError(
                f"The checkpoints before update {step} are gone: the run in {self.folder} wrote some at "
                f"{shorten(gone)}. Put one of them back, or add --from-start to make all {step - 1} updates "
                f"before it again{self.describe_time(step)}. To keep more of them, raise save_total_limit."
            )
        return 0, None

    def describe_time(self, num_updates: int) -> str:
        """How long so many updates may take, as part of a sentence; empty if nothing tells."""
        if self.seconds_per_update is None:
            return ""
        seconds = self.seconds_per_update * num_updates
        if seconds < 1:
            return " (less than a second)"
        units = ((3600.0, "h"), (60.0, "min"), (1.0, "s"))
        size, unit = next(pair for pair in units if seconds >= pair[0])
        return f" (about {seconds / size:.3g} {unit})"


def read_run(folder: str | os.PathLike[str]) -> RunRecord:
    """What a folder says of the run that used it last; raises if there is none."""
    path = Path(folder)
    if not path.is_dir():
        raise ValueError(f"{str(folder)!r} is not a folder. Give the output_dir of a run.")
    events = last_run(read_events(path / JOURNAL_NAME)) if (path / JOURNAL_NAME).is_file() else []
    begins = [event for event in events if event["kind"] == "begin"]
    checkpoints = find_checkpoints_of(path, begins[-1].get("run_id") if begins else None)
    if not begins and not checkpoints:
        advice = f" Did you mean {path.parent}?" if path.name.startswith("checkpoint-") else ""
        raise ValueError(
            f"{path} is not the folder of a run: it has neither {JOURNAL_NAME} nor checkpoints. Give the "
            f"output_dir of a run.{advice}"
        )
    newest = checkpoints[max(checkpoints)] if checkpoints else None
    state = read_state(newest) if newest is not None else {}
    logs = [{**event["logs"], "step": event["step"]} for event in events if event["kind"] == "log"]
    logs = logs or list(state.get("log_history") or [])
    saved = tuple(int(event["step"]) for event in events if event["kind"] == "save")
    steps = [int(event.get("step", 0)) for event in events] + [int(log.get("step", 0)) for log in logs]
    return RunRecord(
        folder=path,
        logs={int(log["step"]): log for log in logs if "loss" in log and "step" in log},
        checkpoints=checkpoints,
        saved_steps=saved,
        last_step=max([*steps, *checkpoints, 0]),
        max_steps=(begins[-1].get("max_steps") if begins else state.get("max_steps")) or None,
        has_ended=any(event["kind"] == "end" for event in events),
        seconds_per_update=find_pace(event for event in events if event["kind"] == "log"),
        settings=(begins[-1].get("settings") if begins else None) or find_settings(newest),
    )


def read_state(checkpoint: Path) -> dict[str, Any]:
    """The state that a checkpoint holds; empty where it cannot be read."""
    try:
        return read_json(checkpoint / TRAINER_STATE_NAME, MAX_STATE_BYTES)
    except (OSError, ValueError):
        return {}


def find_settings(checkpoint: Path | None) -> Mapping[str, Any]:
    """The settings in a checkpoint; empty without one."""
    return (find_saved_arguments(checkpoint) or {}) if checkpoint is not None else {}


def find_pace(logs: Iterable[Mapping[str, Any]]) -> float | None:
    """Seconds of an update, by the times of logs; None if there are too few."""
    marks = [(float(log["time"]), int(log["step"])) for log in logs if "loss" in log["logs"]]
    rates = [
        (time - before) / (step - earlier)
        for (before, earlier), (time, step) in pairwise(marks)
        if step > earlier and math.isfinite(time - before)
    ]
    return statistics.median(rates) if rates else None


def find_num_ranks(checkpoint: Path | None) -> int | None:
    """How many processes the run had; None if nothing tells."""
    return count_ranks(checkpoint) if checkpoint is not None else None


def shorten(numbers: list[int]) -> str:
    """A few of the numbers, for a message."""
    shown = [str(number) for number in numbers]
    return ", ".join(shown if len(shown) <= 4 else [*shown[:2], "...", shown[-1]])
