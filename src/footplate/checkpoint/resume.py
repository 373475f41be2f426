"""Resuming a run: what has changed since, and where in the data it goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from footplate.checkpoint.arguments import TRAINING_ARGS_NAME, load_arguments
from footplate.checkpoint.changes import judge
from footplate.checkpoint.files import Folder
from footplate.state import TrainerState

logger = logging.getLogger(__name__)

LONGEST = 32  # characters of a value in the table


class Difference(NamedTuple):
    """One setting that has changed, and what becomes of it."""

    name: str
    was: Any
    now: Any
    outcome: str  # "harmless", "applied" or "refused"
    text: str  # how it is applied, or why it is refused


@dataclass(frozen=True)
class Differences:
    """The settings that differ between a checkpoint and the run that resumes it."""

    found: tuple[Difference, ...] = ()

    def __iter__(self) -> Iterator[Difference]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    def __contains__(self, name: object) -> bool:
        return any(difference.name == name for difference in self.found)

    @property
    def harmless(self) -> list[Difference]:
        """Those that do not touch what is learned."""
        return [difference for difference in self.found if difference.outcome == "harmless"]

    @property
    def applied(self) -> list[Difference]:
        """Those that hold for the rest of the run."""
        return [difference for difference in self.found if difference.outcome == "applied"]

    @property
    def refused(self) -> list[Difference]:
        """Those with which this would not be the same run."""
        return [difference for difference in self.found if difference.outcome == "refused"]


def review_resume(folder: Folder, current: Mapping[str, Any]) -> Differences:
    """Compare the settings of a checkpoint with the current ones, print the difference, refuse what must be.

    Args:
        folder: The checkpoint to resume from.
        current: `args.to_dict()` of the run that resumes it.
    """
    saved = find_saved_arguments(folder)
    differences = Differences() if saved is None else compare_arguments(saved, current)
    if differences:
        logger.warning("%s", describe(differences))
    check_differences(differences)
    return differences


def find_saved_arguments(folder: Folder) -> dict[str, Any] | None:
    """The settings in a checkpoint; None, and one line, where there are none that can be read safely."""
    path = Path(folder, TRAINING_ARGS_NAME)
    if not path.is_file():
        logger.info("%s has no %s: the settings are not compared.", folder, TRAINING_ARGS_NAME)
        return None
    try:
        return load_arguments(folder)
    except ValueError:
        logger.warning(
            "%s holds Python objects, as transformers writes them, or is damaged. Reading them could run "
            "code, so the settings are not compared.",
            path,
        )
        return None


def compare_arguments(saved: Mapping[str, Any], current: Mapping[str, Any]) -> Differences:
    """What differs, in the order of `current`; a setting that one side does not know is left out."""
    changed = [name for name in current if name in saved and not _is_same(saved[name], current[name])]
    return Differences(
        tuple(Difference(name, saved[name], current[name], *judge(name, saved, current)) for name in changed)
    )


def check_differences(differences: Differences) -> None:
    """Raise if a setting was changed with which this would not be the same run."""
    refused = differences.refused
    if not refused:
        return
    lines = [f"  {name}: was {was!r}, is {now!r}; {why}" for name, was, now, _, why in refused]
    names = ", ".join(difference.name for difference in refused)
    raise ValueError(
        "This checkpoint cannot be resumed with these settings:\n" + "\n".join(lines) + f"\nSet {names} as "
        f"{'it was' if len(refused) == 1 else 'they were'}, or start a new run from these weights: load the "
        "checkpoint into the model and call train() without resume_from_checkpoint."
    )


def describe(differences: Differences) -> str:
    """The differences as a table: setting, was, is, what happens; empty where there are none."""
    if not differences:
        return ""
    ranks = ("refused", "applied", "harmless")
    rows = [("setting", "was", "is", "what happens")]
    for difference in sorted(differences, key=lambda difference: ranks.index(difference.outcome)):
        happens = f"{difference.outcome}: {difference.text}" if difference.text else difference.outcome
        rows.append((difference.name, _shorten(difference.was), _shorten(difference.now), happens))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  " + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]])
        for row in rows
    ]
    return "\n".join(["Resuming with other settings than the checkpoint has:", *lines])


def apply_to_state(differences: Differences, state: TrainerState) -> None:
    """Bring a loaded state in line with the current settings: a best by another metric is none."""
    if "metric_for_best_model" in differences or "greater_is_better" in differences:
        state.best_metric = state.best_global_step = state.best_model_checkpoint = None


def _is_same(was: Any, now: Any) -> bool:
    """Whether two values say the same, one of them having gone through a file of plain values."""
    if str(was) == str(now):
        return True
    values = [value.tolist() if hasattr(value, "tolist") else value for value in (was, now)]
    values = [list(value) if isinstance(value, (tuple, set)) else value for value in values]
    return bool(values[0] == values[1])


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
