"""Resume a run: find its checkpoint and compare its settings with the current ones."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from footplate import comm
from footplate.checkpoint.arguments import TRAINING_ARGS_NAME, load_arguments
from footplate.checkpoint.changed_facts import compare_facts
from footplate.checkpoint.changes import PROCESSES, judge
from footplate.checkpoint.files import Folder
from footplate.checkpoint.named import check_usable
from footplate.checkpoint.ranks import count_ranks
from footplate.checkpoint.rotation import find_checkpoint_folders, find_last_checkpoint
from footplate.checkpoint.runs import MAX_STATE_BYTES, belongs_to, find_origin
from footplate.disk import read_json
from footplate.state import TRAINER_STATE_NAME, TrainerState

logger = logging.getLogger(__name__)

MAX_VALUE_LENGTH = 32  # characters of a value in the table


class Difference(NamedTuple):
    """One setting that has changed, and what happens to it."""

    name: str
    was: Any
    now: Any
    outcome: str  # "harmless", "applied", "refused", or "noticed" of what is not a setting
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
    def applied(self) -> list[Difference]:
        """Those that change the rest of the run."""
        return [difference for difference in self.found if difference.outcome == "applied"]

    @property
    def refused(self) -> list[Difference]:
        """Those that the run cannot be resumed with."""
        return [difference for difference in self.found if difference.outcome == "refused"]


def find_checkpoint(
    wanted: str | bool | None, output_dir: str, overwrite_output_dir: bool = False
) -> str | None:
    """The folder to resume from, None to start a new run; raises if it cannot be used.

    Args:
        wanted: A folder, also one that was changed on purpose; True for the newest intact one of the run
            that saved last; "auto" for the same, or a new run if there is none; None for a new run.
        output_dir: Where to search.
        overwrite_output_dir: Start a new run for "auto".
    """
    if not wanted:
        return None
    if wanted not in (True, "auto"):
        check_usable(str(wanted))
        return os.path.abspath(str(wanted))
    if wanted == "auto" and overwrite_output_dir:
        if find_checkpoint_folders(output_dir):
            logger.warning(
                "A new run begins although %s has checkpoints, since overwrite_output_dir=True. To resume "
                "from them, leave it out, or use resume_from_checkpoint=True.",
                output_dir,
            )
        return None
    found = find_last_checkpoint(output_dir)
    if found is None and wanted is True:
        raise ValueError(
            "resume_from_checkpoint=True, but there is no checkpoint in "
            f"{output_dir!r}, or none of the last run there is intact. Check output_dir, "
            "or use resume_from_checkpoint='auto' to start a new run if there is none."
        )
    return found


def review_resume(
    folder: Folder, current: Mapping[str, Any], facts: Mapping[str, Any] | None = None
) -> Differences:
    """Compare the settings of a checkpoint with the current ones, log what differs, and raise if refused.

    Args:
        folder: The checkpoint to resume from.
        current: `args.to_dict()` of the run that resumes it.
        facts: What else is known of that run: its data, model and versions.
    """
    saved, num_ranks = find_saved_arguments(folder) or {}, count_ranks(folder)
    if num_ranks is not None:
        saved, current = {**saved, PROCESSES: num_ranks}, {**current, PROCESSES: comm.world_size()}
    differences = compare_arguments(saved, current)
    noticed = compare_facts(find_saved_facts(folder), facts) if facts else []
    differences = Differences((*differences, *(Difference(*change) for change in noticed)))
    if differences:
        logger.warning("%s", describe(differences))
    check_differences(differences)
    return differences


def find_saved_arguments(folder: Folder) -> dict[str, Any] | None:
    """The settings in a checkpoint; None, with a message, if none can be read safely."""
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


def find_saved_facts(folder: Folder) -> Any:
    """The facts of the run that wrote a checkpoint; None where there are none."""
    try:
        state = read_json(Path(folder, TRAINER_STATE_NAME), MAX_STATE_BYTES)
        return state["stateful_callbacks"]["RunFacts"]["attributes"]["saved"]
    except (OSError, ValueError, KeyError, TypeError):  # from transformers, an earlier version, or damaged
        return None


def compare_arguments(saved: Mapping[str, Any], current: Mapping[str, Any]) -> Differences:
    """What differs, in the order of `current`; a setting that only one side has is left out."""
    changed = [name for name in current if name in saved and not _is_same(saved[name], current[name])]
    return Differences(
        tuple(Difference(name, saved[name], current[name], *judge(name, saved, current)) for name in changed)
    )


def check_differences(differences: Differences) -> None:
    """Raise if a setting changed that must stay the same."""
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
    """The differences as a table: setting, was, is, what happens; empty without differences."""
    if not differences:
        return ""
    ranks = ("refused", "noticed", "applied", "harmless")
    rows = [("setting", "was", "is", "what happens")]
    for difference in sorted(differences, key=lambda difference: ranks.index(difference.outcome)):
        happens = f"{difference.outcome}: {difference.text}" if difference.text else difference.outcome
        rows.append((difference.name, _shorten(difference.was), _shorten(difference.now), happens))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  " + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]])
        for row in rows
    ]
    is_setting = all(difference.outcome != "noticed" for difference in differences)
    title = "Resuming with other settings than the checkpoint has:"
    return "\n".join([title if is_setting else "What has changed since the checkpoint:", *lines])


def relocate_best(state: TrainerState, checkpoint: Folder, output_dir: Folder) -> None:
    """Find the best checkpoint of a run that was moved or copied: the state holds its path from before."""
    origin = find_origin(Path(checkpoint))
    if state.best_model_checkpoint is None or origin is None:
        return
    name = Path(state.best_model_checkpoint).name
    for folder in (output_dir, Path(checkpoint).parent):
        if belongs_to(Path(folder, name), origin.run_id):
            state.best_model_checkpoint = os.path.join(folder, name)
            return


def apply_to_state(differences: Differences, state: TrainerState) -> None:
    """Forget the best result of a loaded state if the metric that decides on it has changed."""
    if "metric_for_best_model" in differences or "greater_is_better" in differences:
        state.best_metric = state.best_global_step = state.best_model_checkpoint = None


def _is_same(was: Any, now: Any) -> bool:
    """Whether two values mean the same; the saved one was converted to plain values."""
    if str(was) == str(now):
        return True
    values = [value.tolist() if hasattr(value, "tolist") else value for value in (was, now)]
    values = [list(value) if isinstance(value, (tuple, set)) else value for value in values]
    return bool(values[0] == values[1])


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_VALUE_LENGTH else text[: MAX_VALUE_LENGTH - 3] + "..."
