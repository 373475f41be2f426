"""`footplate checkpoints DIR`: list the checkpoints of a run, or of several: which is best, which intact."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from footplate.checkpoint import find_checkpoint_folders, verify_checkpoint
from footplate.checkpoint.runs import group_by_run
from footplate.checkpoint.settings_file import read_settings
from footplate.cli.columns import align, make_printable
from footplate.report.source import read_state
from footplate.state import TRAINER_STATE_NAME
from footplate.words import format_bytes


@dataclass(frozen=True)
class Entry:
    """One checkpoint in the list."""

    name: str
    step: int
    is_best: bool
    is_last: bool  # the one that a resume would use
    size_bytes: int
    metric_name: str | None
    metric: float | None
    is_intact: bool
    has_manifest: bool
    reason: str


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    text = (
        "List the checkpoints of a run, or of all runs in a folder: step, best or last, size, metric, intact."
    )
    parser = commands.add_parser("checkpoints", help=text, description=text)
    parser.add_argument("folder", metavar="DIR", help="The output_dir of a run, or a folder of such folders.")
    parser.add_argument(
        "--json",
        action="store_true",
        help="Print JSON: a list, or for a folder of runs a list for each name.",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the list; the exit code is 1 if there is no checkpoint to resume from."""
    if not Path(options.folder).is_dir():
        raise ValueError(f"{options.folder!r} is not a folder. Give the output_dir of a run.")
    entries = list_checkpoints(options.folder)
    if not entries and (inside := find_runs(options.folder)):
        return run_all(options.folder, inside, options.json)
    if options.json:
        print(json.dumps([asdict(entry) for entry in entries], indent=2))
    elif entries:
        print(format_table(entries))
    else:
        print(f"There are no checkpoints in {options.folder}, nor in a folder inside it.")
    return 0 if any(entry.is_intact for entry in entries) else 1


def run_all(folder: str, names: list[str], as_json: bool) -> int:
    """Print the list of each run in a folder; the exit code is 1 if one of them cannot be resumed."""
    listed = {name: list_checkpoints(Path(folder, name)) for name in names}
    if as_json:
        plain = {name: [asdict(entry) for entry in entries] for name, entries in listed.items()}
        print(json.dumps(plain, indent=2))
    else:
        titles = {name: make_printable(str(Path(folder, name))) for name in names}
        print("\n\n".join(f"{titles[name]}\n{format_table(entries)}" for name, entries in listed.items()))
    can_resume = [any(entry.is_intact for entry in entries) for entries in listed.values()]
    return 0 if all(can_resume) else 1


def find_runs(folder: str | Path) -> list[str]:
    """The names of the folders inside a folder that have checkpoints; links are not followed."""
    inside = (path for path in Path(folder).iterdir() if path.is_dir() and not path.is_symlink())
    return sorted(path.name for path in inside if find_checkpoint_folders(path))


def list_checkpoints(folder: str | Path) -> list[Entry]:
    """Every checkpoint of a folder, oldest first, each compared with its manifest."""
    entries, states = [], {}
    for path in find_checkpoint_folders(folder):
        verdict = verify_checkpoint(path)
        states[path.name] = state = _read_state(path)
        metric_name, metric = _find_metric(path, state)
        entries.append(
            Entry(
                name=path.name,
                step=int(path.name.rpartition("-")[2]),
                is_best=False,
                is_last=False,
                size_bytes=sum(file.stat().st_size for file in path.rglob("*") if file.is_file()),
                metric_name=metric_name,
                metric=metric,
                is_intact=verdict.is_intact,
                has_manifest=verdict.has_manifest,
                reason=verdict.reason,
            )
        )
    runs = group_by_run(find_checkpoint_folders(folder))
    of_last_run = {path.name for run in runs[:1] for path in run.checkpoints}  # a resume takes no other
    resumable = [entry.name for entry in entries if entry.is_intact and entry.name in of_last_run]
    last = resumable[-1] if resumable else None
    best = _find_best(states.get(last or "", {}))
    return [replace(entry, is_best=entry.name == best, is_last=entry.name == last) for entry in entries]


def format_table(entries: list[Entry]) -> str:
    """The list as a table."""
    rows: list[tuple[str, ...]] = [("checkpoint", "step", "", "size", "metric", "state")]
    for entry in entries:
        marks = " ".join(word for word, is_so in (("best", entry.is_best), ("last", entry.is_last)) if is_so)
        metric = "" if entry.metric is None else f"{entry.metric_name} {entry.metric:.6g}"
        state = "intact" if entry.is_intact else f"damaged: {entry.reason}"
        if entry.is_intact and not entry.has_manifest:
            state = "readable, without a manifest"
        rows.append((entry.name, str(entry.step), marks, format_bytes(entry.size_bytes), metric, state))
    return align(rows, (False, True, False, True, False, False))


def _read_state(path: Path) -> Mapping[str, Any]:
    """The trainer state of a checkpoint; empty if it cannot be read, which the table says."""
    try:
        return read_state(path / TRAINER_STATE_NAME)
    except (OSError, ValueError):
        return {}


def _find_metric(path: Path, state: Mapping[str, Any]) -> tuple[str | None, float | None]:
    """Name and value of the metric at this checkpoint: the one that decides on the best, else the loss."""
    try:
        name = read_settings(path).get("metric_for_best_model") or "loss"
    except (OSError, ValueError):
        name = "loss"
    key = str(name) if str(name).startswith("eval_") else f"eval_{name}"
    history = state.get("log_history")
    for entry in reversed(history if isinstance(history, list) else []):
        value = entry.get(key) if isinstance(entry, dict) else None
        if isinstance(value, (int, float)) and entry.get("step") == state.get("global_step"):
            with contextlib.suppress(OverflowError):  # an integer of hundreds of digits
                return key, float(value)
    return None, None


def _find_best(state: Mapping[str, Any]) -> str | None:
    """The name of the best checkpoint by the last state; not its path, as a folder may be moved."""
    path, step = state.get("best_model_checkpoint"), state.get("best_global_step")
    if path:
        return Path(str(path)).name
    return None if step is None else f"checkpoint-{step}"
